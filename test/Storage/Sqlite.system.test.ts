import { storeSuite } from "../suites/StoreSuite.ts"
import { temporaryLayer } from "./SqliteFixture.ts"

storeSuite("Sqlite, written inline", temporaryLayer("inline"))
