import * as Memory from "../../src/Storage/Memory.ts"
import { storeSuite } from "../suites/StoreSuite.ts"

storeSuite("Memory", Memory.layer)
