import { chmodSync, unlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import { Effect, Logger, Option } from "effect"
import { Store } from "../../../../src/Kv/Store.ts"
import * as Opening from "../../../../src/Storage/Sqlite/Database/Opening.ts"
import { format } from "../../../../src/Storage/Sqlite/Kv/Schema.ts"
import * as Sqlite from "../../../../src/Storage/Sqlite.ts"
import * as OtherUser from "../../../faults/OtherUser.ts"
import * as Owner from "../../../faults/Owner.ts"
import { get, put } from "../../../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../../../TemporaryDirectory.ts"

const outcome = <A, E extends { readonly _tag: string }, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.match(effect, { onFailure: error => error._tag, onSuccess: () => "ok" })

const ready = Effect.flatMap(Store, store => store.ready)

for (const writer of ["inline", "thread"] as const) {
  describe(`a lock that is removed, written ${writer}`, () => {
    it.scopedLive("is locked again if no other process has done so, and keeps others out", () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        yield* Effect.gen(function* () {
          yield* put("n", "a", 1)
          unlinkSync(join(directory, "kv.lock"))
          expect(yield* outcome(put("n", "b", 1))).toBe("ok")
          expect((yield* Owner.start(directory)).opened).toMatchObject({ error: "StoreRefused" })
          expect(yield* outcome(put("n", "c", 1))).toBe("ok")
        }).pipe(Effect.provide(Sqlite.layer({ directory, writer })))
      })
    )

    it.scopedLive("leaves the store to the process that locks the new one: no other acknowledges a write", () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory
        yield* Effect.gen(function* () {
          yield* put("n", "a", 1)
          unlinkSync(join(directory, "kv.lock"))
          const other = yield* Owner.start(directory)
          expect(other.opened).toEqual({ ok: "open" })
          for (let attempt = 0; attempt < 3; attempt++) {
            expect(yield* outcome(put("n", "mine", attempt))).toBe("StoreUnavailable")
            expect(yield* ready).toBe(false)
            expect(yield* other.ask({ do: "set", key: "theirs", value: String(attempt) })).toHaveProperty("ok")
          }
          // Only writes in flight when the loss was noticed may be stored.
          expect(Option.map(yield* get("n", "mine"), ({ version }) => version)).not.toEqual(Option.some(2))
          yield* other.end
          expect(yield* outcome(put("n", "b", 1))).toBe("ok")
          expect(Option.map(yield* get("n", "theirs"), ({ value }) => value)).toEqual(Option.some('"2"'))
        }).pipe(
          Effect.provide(Sqlite.layer({ directory, writer })),
          Effect.provide(Logger.remove(Logger.defaultLogger))
        )
      })
    )
  })
}

describe("a lock that can only be read", () => {
  it.scoped("is refused: it would exclude no process", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      chmodSync(directory, 0o777)
      writeFileSync(join(directory, "kv.lock"), "", { mode: 0o444 })
      const opened = Effect.zipRight(OtherUser.become, Opening.open(directory, format))
      const refused = yield* Effect.flip(Effect.scoped(opened))
      expect(refused.message).toMatch(/kv\.lock can only be read by this user, and so locks no other process out/)
      chmodSync(join(directory, "kv.lock"), 0o666)
      yield* Effect.scoped(opened)
    })
  )
})
