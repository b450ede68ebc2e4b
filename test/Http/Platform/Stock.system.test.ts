import * as Memory from "../../../src/Storage/Memory.ts"
import { stock } from "../../Harness.ts"
import { temporaryLayer } from "../../Storage/SqliteFixture.ts"
import { httpSuite, ofStore, outageSuite } from "../../suites/HttpSuite.ts"

httpSuite(stock, "memory", Memory.layer, ofStore)
outageSuite(stock)
httpSuite(stock, "sqlite", temporaryLayer("thread"), ofStore)
