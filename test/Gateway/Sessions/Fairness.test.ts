/** Requests of one tenant next to those of others. */
import { describe, expect, it } from "@effect/vitest"
import { Array as Arr, Effect, Fiber } from "effect"
import { alice, make, mallory } from "../Fixture.ts"

describe("Lists of sessions", () => {
  it.scopedLive("of one tenant do not delay another tenant's", () =>
    Effect.gen(function* () {
      const { start } = yield* make()
      const { sessions } = yield* start
      yield* sessions.create(alice, { agentType: "echo" })
      yield* sessions.create(mallory, { agentType: "echo" })
      const asked = 200
      let begun = 0
      let answered = 0
      const one = Effect.gen(function* () {
        begun++
        yield* sessions.list(mallory)
        answered++
      })
      const storm = yield* Effect.fork(
        Effect.forEach(Arr.range(1, asked), () => one, { concurrency: "unbounded", discard: true })
      )
      while (begun < asked) yield* Effect.yieldNow()
      expect((yield* sessions.list(alice)).sessions).toHaveLength(1)
      expect(answered).toBeLessThan(20)
      yield* Fiber.join(storm)
      expect(answered).toBe(asked)
    })
  )
})
