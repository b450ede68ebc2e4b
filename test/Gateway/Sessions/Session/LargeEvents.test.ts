import { describe, expect } from "@effect/vitest"
import { Effect, TestClock } from "effect"
import { makePaced } from "../../../../src/Gateway/Sessions/Session/SessionCore.ts"
import { breathe } from "../../../../src/Simulator/Testing/Time.ts"
import { test } from "../../../Tests.ts"

const MiB = 1024 * 1024

/** Updates of some tenants that end when the test says so. */
const make = () => {
  const paced = makePaced()
  const started: Array<string> = []
  const latches = new Map<string, Effect.Latch>()
  const update = (tenant: string, name: string, size = MiB) => {
    const latch = Effect.unsafeMakeLatch(false)
    latches.set(name, latch)
    return Effect.fork(
      paced(
        tenant,
        size,
        Effect.suspend(() => {
          started.push(name)
          return latch.await
        })
      )
    )
  }
  const end = (name: string) => Effect.zipRight(latches.get(name)!.open, breathe)
  return { update, end, started }
}

describe("large events", () => {
  test.effect(
    "of a tenant are stored one after the other, during those of another, and small ones at once",
    function* () {
      const { end, started, update } = make()
      for (const name of ["a1", "a2", "a3"]) yield* update("a", name)
      yield* update("b", "b1")
      yield* update("a", "small", 100)
      yield* breathe
      expect(started.toSorted()).toEqual(["a1", "b1", "small"])
      yield* end("a1")
      expect(started.slice(3)).toEqual(["a2"])
      yield* end("b1")
      yield* end("a2")
      expect(started.slice(3)).toEqual(["a2", "a3"])
    }
  )

  test.effect("that the store does not take delay others for two seconds", function* () {
    const { started, update } = make()
    for (const name of ["a1", "a2"]) yield* update("a", name)
    yield* breathe
    yield* TestClock.adjust("1900 millis")
    yield* breathe
    expect(started).toEqual(["a1"])
    yield* TestClock.adjust("100 millis")
    yield* breathe
    expect(started).toEqual(["a1", "a2"])
  })
})
