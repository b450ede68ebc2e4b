import { temporaryLayer } from "../../Storage/SqliteFixture.ts"
import { httpSuite, ofStore } from "../../suites/HttpSuite.ts"
import { quickEdge } from "./EdgeTransport.ts"

httpSuite(quickEdge, "sqlite", temporaryLayer("thread"), ofStore)
