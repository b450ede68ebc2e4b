import { temporaryLayer } from "../../Storage/SqliteFixture.ts"
import { essential, httpSuite, rowSuite } from "../../suites/HttpSuite.ts"
import { edge, quickEdge } from "./EdgeTransport.ts"

httpSuite(quickEdge, "sqlite", temporaryLayer("thread"), essential)
rowSuite(quickEdge, "sqlite", temporaryLayer("thread"))
rowSuite(edge, "sqlite", temporaryLayer("thread"))
