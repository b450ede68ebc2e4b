import * as Sqlite from "../../src/Storage/Sqlite.ts"
import { times } from "../Scale.ts"
import { idempotencySuite } from "../suites/IdempotencySuite.ts"
import { modelSuite } from "../suites/ModelSuite.ts"
import { printedSuite } from "../suites/PrintedSuite.ts"
import { storeSuite } from "../suites/StoreSuite.ts"
import { temporaryLayer } from "./SqliteFixture.ts"

// A thread for each test takes half of the time; EdgeSqlite and WriterThread have it.
storeSuite("Sqlite, written inline", temporaryLayer("inline"))
printedSuite("SQLite", temporaryLayer("inline"))

modelSuite("Sqlite", {
  layerAt: directory => Sqlite.layer({ directory, writer: "inline" }),
  persists: true,
  runs: times(20)
})

idempotencySuite("Sqlite", {
  layerAt: directory => Sqlite.layer({ directory, writer: "inline" }),
  persists: true,
  runs: times(10)
})
