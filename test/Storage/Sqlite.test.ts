import { storeSuite } from "../suites/StoreSuite.ts"
import { temporaryLayer } from "./SqliteFixture.ts"

storeSuite("Sqlite, written inline", temporaryLayer("inline"))
storeSuite("Sqlite, written by a thread", temporaryLayer("thread"))
