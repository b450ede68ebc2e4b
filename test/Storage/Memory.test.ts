import * as Memory from "../../src/Storage/Memory.ts"
import { idempotencySuite } from "../suites/IdempotencySuite.ts"
import { modelSuite } from "../suites/ModelSuite.ts"
import { storeSuite } from "../suites/StoreSuite.ts"

storeSuite("Memory", Memory.layer)
modelSuite("Memory", { layerAt: () => Memory.layer, persists: false })
idempotencySuite("Memory", { layerAt: () => Memory.layer, persists: false, runs: 20 })
