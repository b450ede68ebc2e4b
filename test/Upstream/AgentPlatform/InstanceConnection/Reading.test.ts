/** Events of an instance: silence of the connection, slow consumers, and where it resumes. */

import { describe, expect, it } from "@effect/vitest"
import { Effect, Exit, Fiber, FastCheck as fc, Logger, LogLevel, Stream, TestClock, TestContext } from "effect"
import { OversizedFrame } from "../../../../src/Upstream/PlatformEvent.ts"
import { times } from "../../../Scale.ts"
import { test } from "../../../Tests.ts"
import * as Interleaving from "../../Interleaving.ts"
import { eventsOf } from "../../Platform.ts"
import { collect, connected, makePlatform, read } from "./Fixture.ts"

describe("InstanceConnection", () => {
  connected("has an error in place of an event that is too large, and continues", function* ({ connection, peers }) {
    const members = `{"id":"e2","type":"tool.result","output":[${"0,".repeat(40_000)}0]}`
    peers[0]!.emit({ type: "a", id: "e1" }, new OversizedFrame("has 2 bytes; the limit is 1"), members)
    peers[0]!.emit({ type: "b", id: "e3" })
    const events = yield* Stream.runCollect(Stream.take(eventsOf(connection), 4))
    const leftOut = (problem: string) => ({
      id: undefined,
      type: "error",
      payload: {
        type: "error",
        code: "event_too_large",
        message: `An event of the agent was left out, because it ${problem}`
      }
    })
    expect([...events]).toMatchObject([
      { id: "e1" },
      leftOut("has 2 bytes; the limit is 1"),
      leftOut("has more than 32768 members and elements"),
      { id: "e3" }
    ])
    peers[0]!.drop()
    yield* TestClock.adjust("1 second")
    expect(peers[1]!.after).toBe("e3")
  })

  test.scoped("gives what waits before its end, and before its failure", function* () {
    const { connect, peers } = makePlatform("open")
    const ending = yield* connect()
    peers[0]!.emit({ type: "a", id: "e1" }, { type: "instance.stopped", id: "e2" })
    yield* TestClock.adjust("1 second")
    expect([...(yield* Stream.runCollect(eventsOf(ending)))]).toMatchObject([{ id: "e1" }, { id: "e2" }])
    const failing = yield* connect()
    peers[1]!.emit({ type: "b", id: "e3" })
    peers[1]!.drop(true)
    yield* TestClock.adjust("1 second")
    expect((yield* failing.take)[0]).toMatchObject([{ id: "e3" }])
    expect(yield* Effect.flip(failing.take)).toMatchObject({ reason: "too_large" })
  })

  connected("lets a consumer have few large events at once", function* ({ connection, peers }) {
    const large = "x".repeat(300_000)
    peers[0]!.emit({ type: "a" }, { type: "b" }, { type: "c", large }, { type: "d", large }, { type: "e" })
    yield* TestClock.adjust(0)
    const types: Array<ReadonlyArray<string>> = []
    while (types.flat().length < 5) {
      const [received] = yield* connection.take
      types.push(received.flatMap(one => ("type" in one ? [one.type] : [])))
    }
    expect(types).toEqual([["a", "b", "c"], ["d"], ["e"]])
  })

  read("gives up a silent connection, but not one that answers pings", function* ({ peers }) {
    peers[0]!.answerPings()
    yield* TestClock.adjust("10 minutes")
    expect(peers).toHaveLength(1)
    expect(peers[0]!.pings()).toBeGreaterThan(10)
    peers[0]!.drop()
    yield* TestClock.adjust("1 second")
    expect(peers).toHaveLength(2)
    yield* TestClock.adjust("39 seconds")
    expect(peers).toHaveLength(2)
    yield* TestClock.adjust("10 seconds")
    expect(peers).toHaveLength(3)
    expect(peers[1]!.isReleased()).toBe(true)
  })

  connected(
    "reads no more than a bounded number of events ahead, and takes a busy consumer for no dead platform",
    function* ({ connection, peers }) {
      peers[0]!.emit(...Array.from({ length: 1000 }, (_, i) => ({ type: "a", id: `e${i}` })))
      yield* TestClock.adjust("1 hour")
      expect(peers).toHaveLength(1)
      expect(peers[0]!.waiting()).toBeGreaterThan(1000 - 70)
      const { ids } = yield* collect(connection)
      yield* TestClock.adjust(0)
      expect(yield* ids).toEqual(Array.from({ length: 1000 }, (_, i) => `e${i}`))
    }
  )

  connected(
    "gives up a silent connection after one that was given up while its event waited for room",
    function* ({ peers }) {
      peers[0]!.emit(...Array.from({ length: 64 }, (_, i) => ({ type: "a", id: `e${i}` })))
      peers[0]!.emitTooLate({ type: "a", id: "late" })
      yield* TestClock.adjust("1 minute")
      yield* TestClock.adjust("10 seconds")
      expect(peers.map(({ after }) => after).slice(0, 2)).toEqual([undefined, "e63"])
      yield* TestClock.adjust("1 minute")
      expect(peers[1]!.pings()).toBe(1)
      expect(peers[1]!.isReleased()).toBe(true)
    }
  )

  it.live("resumes after the last event that it has delivered, wherever a connection was closed", () =>
    Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(Interleaving.interleavings, async interleaving => {
          const program = Effect.gen(function* () {
            const { connect, peers } = makePlatform("open")
            const { ids } = yield* Effect.flatMap(connect("e0"), collect)
            peers[0]!.emitTooLate({ type: "a", id: "late" })
            yield* TestClock.adjust("1 minute")
            return { after: peers[1]?.after, delivered: yield* ids }
          })
          const { after, delivered } = await Effect.runPromise(
            Effect.provide(
              Interleaving.run(Effect.scoped(program), interleaving).pipe(Logger.withMinimumLogLevel(LogLevel.None)),
              TestContext.TestContext
            )
          )
          expect(["e0", ...delivered].at(-1)).toBe(after)
        }),
        { numRuns: times(100) }
      )
    )
  )

  it.live("carries all events, however little the consumer and the reader do at a time", () =>
    Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(Interleaving.interleavings, async interleaving => {
          const program = Effect.gen(function* () {
            const { connect, peers } = makePlatform("open")
            const { fiber, ids } = yield* Effect.flatMap(connect(), collect)
            const events = Array.from({ length: 200 }, (_, i) => ({ type: "a", id: `e${i}` }))
            peers[0]!.emit(...events, { type: "instance.stopped" })
            peers[0]!.drop()
            yield* Fiber.join(fiber)
            return yield* ids
          })
          const expected = [...Array.from({ length: 200 }, (_, i) => `e${i}`), undefined]
          expect(await Interleaving.endOf(Effect.scoped(program), interleaving)).toEqual(Exit.succeed(expected))
        }),
        { numRuns: times(50) }
      )
    )
  )
})
