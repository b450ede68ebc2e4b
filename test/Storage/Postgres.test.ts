import { describe, it } from "vitest"
import { emptiedAt, emptiedLayer } from "../postgres/Databases.ts"
import { reasonToSkip } from "../postgres/Server.ts"
import { times } from "../Scale.ts"
import { idempotencySuite } from "../suites/IdempotencySuite.ts"
import { modelSuite } from "../suites/ModelSuite.ts"
import { printedSuite } from "../suites/PrintedSuite.ts"
import { storeSuite } from "../suites/StoreSuite.ts"

if (reasonToSkip === undefined) {
  const layerAt = emptiedAt()
  storeSuite("Postgres", emptiedLayer())
  printedSuite("PostgreSQL", emptiedLayer())
  modelSuite("Postgres", { layerAt, persists: true, runs: times(4) })
  idempotencySuite("Postgres", { layerAt, persists: true, runs: times(4) })
} else {
  describe.skip(`Postgres, ${reasonToSkip}`, () => {
    it("passes the suites of stores", () => undefined)
  })
}
