import * as Memory from "../../../src/Storage/Memory.ts"
import { stock } from "../../Harness.ts"
import { httpSuite, outageSuite } from "../../suites/HttpSuite.ts"

httpSuite(stock, "memory", Memory.layer)
outageSuite(stock)
