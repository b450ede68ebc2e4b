import { describe, expect, it } from "@effect/vitest"
import { Chunk, Effect, Layer, Stream } from "effect"
import * as TestClock from "effect/TestClock"
import { Limits } from "../../src/Kv/Limits.ts"
import { Store } from "../../src/Kv/Store.ts"
import { put, set, write } from "../suites/Store/Fixture.ts"
import { temporaryLayer } from "./SqliteFixture.ts"

const list = Effect.flatMap(Store, store => store.listAll({ namespace: "n", prefix: "" }))

/** Fills the namespace, so that a list of it has 21 portions. */
const fill = write(Array.from({ length: 20_001 }, (_, index) => set("n", `k${index}`, 1)))

/** Takes the portions one by one, with a pause before each, and says how many came and how it ended. */
const take = (portions: Stream.Stream<unknown, { readonly reason: string }>, pause: string & `${number} seconds`) => {
  let taken = 0
  return portions.pipe(
    Stream.runForEach(() =>
      Effect.suspend(() => {
        taken++
        return TestClock.adjust(pause)
      })
    ),
    Effect.match({ onFailure: ({ reason }) => ({ taken, reason }), onSuccess: () => ({ taken, reason: "read whole" }) })
  )
}

const inStore = <A, E, R>(body: Effect.Effect<A, E, R>) => Effect.provide(body, temporaryLayer("inline"))

describe("whole lists", () => {
  it.scoped("are read to their end however long that takes, as long as something is taken", () =>
    inStore(
      Effect.gen(function* () {
        yield* fill
        const { portions } = yield* list
        expect(yield* take(portions, "40 seconds")).toEqual({ taken: 21, reason: "read whole" })
      })
    )
  )

  it.scoped("are cut when nothing is taken for a minute", () =>
    inStore(
      Effect.gen(function* () {
        yield* fill
        const { portions } = yield* list
        expect(yield* take(portions, "60 seconds")).toEqual({ taken: 1, reason: expect.stringContaining("60 s") })
      })
    )
  )

  it.scoped("are cut after a quarter of an hour, so that no snapshot is held for ever", () =>
    inStore(
      Effect.gen(function* () {
        yield* fill
        const { portions } = yield* list
        expect(yield* take(portions, "50 seconds")).toEqual({ taken: 18, reason: expect.stringContaining("900 s") })
      })
    )
  )

  it.scoped("are so many at a time, and the next is told to come back", () =>
    Effect.gen(function* () {
      yield* put("n", "a", 1)
      yield* Effect.scoped(
        Effect.gen(function* () {
          for (let index = 0; index < 3; index++) yield* list
          expect((yield* Effect.flip(list))._tag).toBe("StoreBusy")
        })
      )
      const { lastSeq, portions } = yield* list
      expect([lastSeq, Chunk.size(yield* Stream.runCollect(portions))]).toEqual([1, 1])
    }).pipe(
      Effect.provide(
        Layer.provide(
          temporaryLayer("inline"),
          Layer.effect(
            Limits,
            Effect.map(Limits, limits => ({ ...limits, wholeLists: 3 }))
          )
        )
      )
    )
  )
})
