import * as Memory from "../../../src/Storage/Memory.ts"
import { stock } from "../../Harness.ts"
import { essential, httpSuite, ofTransport } from "../../suites/HttpSuite.ts"

httpSuite(stock, "memory", Memory.layer, { ...ofTransport, ...essential })
