import { stock } from "../../Harness.ts"
import { temporaryLayer } from "../../Storage/SqliteFixture.ts"
import { httpStoreSuite } from "../../suites/HttpSuite.ts"

httpStoreSuite(stock, "sqlite", temporaryLayer("thread"))
