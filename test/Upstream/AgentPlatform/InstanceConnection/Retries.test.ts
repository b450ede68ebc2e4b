/** When the connection to an instance is tried again, and when it fails. */
import { describe, expect } from "@effect/vitest"
import { Deferred, Effect, Fiber, TestClock } from "effect"
import * as InstanceConnection from "../../../../src/Upstream/AgentPlatform/InstanceConnection.ts"
import { test } from "../../../Tests.ts"
import { stateOf } from "../../Platform.ts"
import { collect, failure, gone, makePlatform, read } from "./Fixture.ts"

describe("InstanceConnection", () => {
  for (const refusal of [
    failure({ reason: "status", statusCode: 401 }),
    failure({ reason: "status", statusCode: 403 })
  ]) {
    read(
      `fails when the platform answers ${refusal.statusCode}`,
      ["open", refusal],
      function* ({ connection, fiber, peers, tries }) {
        peers[0]!.drop()
        yield* TestClock.adjust("1 hour")
        expect(yield* Effect.flip(Fiber.join(fiber))).toMatchObject({ statusCode: refusal.statusCode })
        expect(yield* stateOf(connection)).toBe("closed")
        expect(tries).toHaveLength(2)
      }
    )
  }

  read("fails at a frame that is too long, which would only come again", function* ({ fiber, peers, tries }) {
    peers[0]!.drop(true)
    expect(yield* Effect.flip(Fiber.join(fiber))).toMatchObject({ reason: "too_large" })
    expect(tries).toHaveLength(1)
  })

  test.scoped("keeps retrying for hours, with waits of at most ten seconds", function* () {
    const away = [failure({}), failure({ reason: "circuit_open" }), failure({ reason: "status", statusCode: 503 })]
    const down = Array.from({ length: 200 }, (_, i) => away[i % 3]!)
    const { connect, peers, tries } = makePlatform("open", ...down, "open")
    const connection = yield* connect()
    yield* collect(connection)
    peers[0]!.drop()
    yield* TestClock.adjust("10 seconds")
    const early = tries.length
    expect(early).toBeGreaterThan(3)
    expect(early).toBeLessThan(40)
    for (let i = 0; peers.length < 2 && i < 400; i++) yield* TestClock.adjust("5 seconds")
    expect(peers).toHaveLength(2)
    expect(tries).toHaveLength(202)
    expect(yield* stateOf(connection)).toBe("connected")
  })

  read(
    "keeps its waits while connections drop at once, and resets them after a good one",
    function* ({ peers, tries }) {
      for (let i = 0; i < 150; i++) {
        peers.at(-1)!.drop()
        yield* TestClock.adjust("200 millis")
      }
      // In 30 s, by waits of up to 10 s; without them there would be one each time.
      expect(tries.length).toBeLessThan(40)
      yield* TestClock.adjust("20 seconds")
      const before = peers.length
      peers.at(-1)!.emit({ type: "a", id: "e1" })
      peers.at(-1)!.drop()
      yield* TestClock.adjust("200 millis")
      expect(peers).toHaveLength(before + 1)
    }
  )

  test.effect("fails where the first connection does", function* () {
    const { connect } = makePlatform(gone)
    expect(yield* Effect.flip(Effect.scoped(connect()))).toMatchObject({ statusCode: 404 })
  })

  test.effect("an interrupted dial leaves nothing behind", function* () {
    const released = yield* Deferred.make<void>()
    const dial = () =>
      Effect.zipRight(
        Effect.acquireRelease(Effect.void, () => Deferred.succeed(released, undefined)),
        Effect.never
      )
    const fiber = yield* Effect.fork(
      Effect.scoped(InstanceConnection.make({ dial, after: undefined, instanceId: "i" }))
    )
    yield* Effect.yieldNow()
    yield* Fiber.interrupt(fiber)
    expect(yield* Deferred.isDone(released)).toBe(true)
  })
})
