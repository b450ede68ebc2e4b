import { storeSuite } from "../suites/StoreSuite.ts"
import { temporaryLayer } from "./SqliteFixture.ts"

storeSuite("Sqlite, written by a thread", temporaryLayer("thread"))
