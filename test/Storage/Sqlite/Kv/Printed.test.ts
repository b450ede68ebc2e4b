import { printedSuite } from "../../../suites/PrintedSuite.ts"
import { temporaryLayer } from "../../SqliteFixture.ts"

printedSuite("SQLite", temporaryLayer("inline"))
