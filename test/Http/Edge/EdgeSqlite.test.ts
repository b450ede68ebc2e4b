import { temporaryLayer } from "../../Storage/SqliteFixture.ts"
import { httpStoreSuite, rowSuite } from "../../suites/HttpSuite.ts"
import { edge, quickEdge } from "./EdgeTransport.ts"

httpStoreSuite(quickEdge, "sqlite", temporaryLayer("thread"))
rowSuite(quickEdge, "sqlite", temporaryLayer("thread"))
rowSuite(edge, "sqlite", temporaryLayer("thread"))
