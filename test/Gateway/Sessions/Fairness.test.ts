/** Requests of one tenant next to those of others. */
import { describe, expect } from "@effect/vitest"
import { Array as Arr, Effect, Fiber, TestClock } from "effect"
import type { Caller } from "../../../src/Gateway/Sessions.ts"
import { alice, bare, mallory, timedBare } from "../Fixture.ts"

describe("Lists of sessions", () => {
  bare("of one tenant do not delay another tenant's", function* ({ sessions }) {
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
})

describe("Sessions in memory", () => {
  timedBare(
    "are not stopped for another tenant's session while another node has subscribers to them",
    { settings: { inMemory: 3 } },
    function* ({ sessions }) {
      const begin = (caller: Caller) =>
        Effect.gen(function* () {
          const { id } = yield* sessions.create(caller, { agentType: "echo" })
          return (yield* sessions.start(caller, id)).id
        })
      const activeOf = (caller: Caller) =>
        Effect.map(sessions.list(caller), page =>
          page.sessions.filter(({ state }) => state === "active").map(({ id }) => id)
        )
      const followed = yield* begin(mallory)
      const subscribed = { ...mallory, hasSubscribers: true }
      yield* sessions.get(subscribed, followed)
      yield* begin(mallory)
      const last = yield* begin(mallory)
      yield* begin(alice)
      expect(new Set(yield* activeOf(mallory))).toEqual(new Set([last, followed]))
      // The other node has said nothing for some time.
      yield* TestClock.adjust("10 minutes")
      yield* begin({ tenant: "third", actor: "bob" })
      expect(yield* activeOf(mallory)).toEqual([last])
    }
  )
})
