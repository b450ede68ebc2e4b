import * as Memory from "../../../src/Storage/Memory.ts"
import { stock } from "../../Harness.ts"
import { credentials } from "../../suites/Http/Credentials.ts"
import { fields } from "../../suites/Http/Fields.ts"
import { routing } from "../../suites/Http/Routing.ts"
import { essential, httpSuite } from "../../suites/HttpSuite.ts"

httpSuite(stock, "memory", Memory.layer, { routing, credentials, fields, ...essential })
