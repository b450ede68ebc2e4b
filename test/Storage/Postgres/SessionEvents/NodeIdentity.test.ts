import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import { Effect, Option } from "effect"
import * as NodeIdentity from "../../../../src/Storage/Postgres/SessionEvents/NodeIdentity.ts"
import { temporaryDirectory } from "../../../TemporaryDirectory.ts"

describe("the directory of a node", () => {
  it.scoped("belongs to one process at a time, and remembers the id of its last run", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      const first = yield* Effect.scoped(
        Effect.gen(function* () {
          const first = yield* NodeIdentity.make(directory)
          const refused = yield* Effect.flip(NodeIdentity.make(directory))
          expect(refused._tag).toBe("StoreRefused")
          expect(refused.message).toContain(`${join(directory, "node.lock")} is locked: another process has`)
          return first
        })
      )
      expect((yield* NodeIdentity.make(directory)).predecessor).toEqual(Option.some(first.id))
    })
  )

  it.scoped("may be one that cannot be used", () =>
    Effect.gen(function* () {
      const { predecessor } = yield* NodeIdentity.make("/dev/null/node")
      expect(predecessor).toEqual(Option.none())
    })
  )
})
