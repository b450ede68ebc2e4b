import { Effect, Layer } from "effect"
import { describe, it } from "vitest"
import { createDatabase, emptiedLayer, optionsOf } from "../postgres/Databases.ts"
import * as Opened from "../postgres/Opened.ts"
import { reasonToSkip } from "../postgres/Server.ts"
import { times } from "../Scale.ts"
import { idempotencySuite } from "../suites/IdempotencySuite.ts"
import { modelSuite } from "../suites/ModelSuite.ts"
import { printedSuite } from "../suites/PrintedSuite.ts"
import { storeSuite } from "../suites/StoreSuite.ts"

/** The database of a directory: a store that is opened there again finds what it left. */
const databases = new Map<string, Promise<string>>()

const databaseOf = (directory: string): Promise<string> => {
  const known = databases.get(directory) ?? createDatabase()
  databases.set(directory, known)
  return known
}

const layerAt = (directory: string) =>
  Layer.unwrapEffect(
    Effect.map(
      Effect.promise(() => databaseOf(directory)),
      url => Opened.layer(optionsOf(url))
    )
  )

if (reasonToSkip === undefined) {
  storeSuite("Postgres", emptiedLayer())
  printedSuite("PostgreSQL", emptiedLayer())
  modelSuite("Postgres", { layerAt, persists: true, runs: times(8) })
  idempotencySuite("Postgres", { layerAt, persists: true, runs: times(4) })
} else {
  describe.skip(`Postgres, ${reasonToSkip}`, () => {
    it("passes the suites of stores", () => undefined)
  })
}
