import { join } from "node:path"
import { describe, expect } from "@effect/vitest"
import { Effect, Option } from "effect"
import * as NodeIdentity from "../../../../src/Storage/Postgres/SessionEvents/NodeIdentity.ts"
import { temporaryDirectory } from "../../../TemporaryDirectory.ts"
import { test } from "../../../Tests.ts"

describe("the directory of a node", () => {
  test.scoped("belongs to one process at a time, and remembers the id of its last run", function* () {
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

  test.scoped("may be one that cannot be used", function* () {
    const { predecessor } = yield* NodeIdentity.make("/dev/null/node")
    expect(predecessor).toEqual(Option.none())
  })
})
