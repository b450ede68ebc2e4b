import * as Memory from "../../../src/Storage/Memory.ts"
import { stock } from "../../Harness.ts"
import { temporaryLayer } from "../../Storage/SqliteFixture.ts"
import { httpSuite, ofStore, ofTransport, outageSuite } from "../../suites/HttpSuite.ts"

httpSuite(stock, "memory", Memory.layer, { ...ofTransport, ...ofStore })
outageSuite(stock)
httpSuite(stock, "sqlite", temporaryLayer("thread"), ofStore)
