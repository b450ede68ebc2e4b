import { Effect, Layer } from "effect"
import { describe, it } from "vitest"
import * as Postgres from "../../src/Storage/Postgres.ts"
import { createDatabase, emptiedLayer, optionsOf } from "../postgres/Databases.ts"
import { reasonToSkip } from "../postgres/Server.ts"
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

if (reasonToSkip === undefined) {
  storeSuite("Postgres", emptiedLayer())
  printedSuite("PostgreSQL", emptiedLayer())
  modelSuite("Postgres", {
    layerAt: directory =>
      Layer.unwrapEffect(
        Effect.map(
          Effect.promise(() => databaseOf(directory)),
          url => Postgres.layer(optionsOf(url))
        )
      ),
    persists: true,
    runs: 8
  })
} else {
  describe.skip(`Postgres, ${reasonToSkip}`, () => {
    it("passes the suites of stores", () => undefined)
  })
}
