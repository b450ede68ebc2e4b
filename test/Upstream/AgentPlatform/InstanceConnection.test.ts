/** The connection to an instance: events in order, its state, and its end. */
import { describe, expect } from "@effect/vitest"
import { Chunk, Effect, Exit, Fiber, Logger, Option, Scope, Stream, TestClock } from "effect"
import type { InstanceConnection } from "../../../src/Upstream/AgentPlatform.ts"
import { test } from "../../Tests.ts"
import { stateOf } from "../Platform.ts"
import { collect, gone, makePlatform, message, read } from "./InstanceConnection/Fixture.ts"

const watch = <E>(connection: InstanceConnection<E>) =>
  Effect.gen(function* () {
    const fiber = yield* Effect.fork(Stream.runCollect(connection.states))
    yield* Effect.yieldNow()
    return Effect.map(Fiber.join(fiber), Chunk.toReadonlyArray)
  })

describe("InstanceConnection", () => {
  test.scoped("carries events in order and frames out", function* () {
    const { connect, peers } = makePlatform("open")
    const connection = yield* connect("e0")
    const { ids } = yield* collect(connection)
    expect(peers[0]!.after).toBe("e0")
    peers[0]!.emit({ type: "a", id: "e1" }, { type: "b" }, { type: "c", id: "e2" })
    yield* TestClock.adjust(0)
    expect(yield* ids).toEqual(["e1", undefined, "e2"])
    yield* connection.send(message)
    expect(peers[0]!.sent.map(text => JSON.parse(text))).toEqual([message])
    expect(yield* stateOf(connection)).toBe("connected")
  })

  read("resumes after the last event with an id when the socket drops", function* ({ ids, peers, tries }) {
    peers[0]!.emit({ type: "a", id: "e1" }, { type: "b", id: "e2" }, { type: "c" })
    peers[0]!.drop()
    yield* TestClock.adjust(0)
    expect(yield* ids).toEqual(["e1", "e2", undefined])
    yield* TestClock.adjust("200 millis")
    expect(peers).toHaveLength(2)
    expect(peers[1]!.after).toBe("e2")
    expect(tries).toEqual([{ again: false }, { again: true }])
    expect(peers[0]!.isReleased()).toBe(true)
    // A platform that repeats the event that it was to resume after is tolerated.
    peers[1]!.emit({ type: "b", id: "e2" }, { type: "d", id: "e3" })
    yield* TestClock.adjust(0)
    expect(yield* ids).toEqual(["e1", "e2", undefined, "e3"])
  })

  test.scoped("logs what becomes of it as its own affair, not as that of the request that made it", function* () {
    const { connect, peers } = makePlatform("open")
    const lines: Array<unknown> = []
    const collecting = Logger.make<unknown, void>(({ annotations, message }) => {
      lines.push([message, Object.fromEntries(annotations)])
    })
    yield* connect().pipe(
      Effect.annotateLogs("request", "start_session"),
      Effect.provide(Logger.replace(Logger.defaultLogger, collecting))
    )
    peers[0]!.drop()
    yield* TestClock.adjust("200 millis")
    expect(lines).toEqual([
      [["Lost the connection to an agent instance; reconnecting"], { instanceId: "i-1", reason: "dropped" }],
      [["Connected to an agent instance again"], { instanceId: "i-1" }]
    ])
  })

  read(
    "shows its state, and ends when the instance is gone",
    ["open", "open", gone],
    function* ({ connection, fiber, peers }) {
      const states = yield* watch(connection)
      peers[0]!.drop()
      yield* TestClock.adjust("200 millis")
      expect(yield* stateOf(connection)).toBe("connected")
      peers[1]!.drop()
      yield* TestClock.adjust("1 second")
      yield* Fiber.join(fiber)
      expect(yield* states).toEqual(["connected", "reconnecting", "connected", "reconnecting", "closed"])
      expect(yield* stateOf(connection)).toBe("closed")
      expect(Chunk.toReadonlyArray(yield* Stream.runCollect(connection.states))).toEqual(["closed"])
      expect(yield* Effect.flip(connection.send(message))).toMatchObject({ reason: "connection" })
    }
  )

  for (const type of ["instance.stopped", "instance.failed"]) {
    read(
      `closes the socket that the platform leaves open after ${type}`,
      function* ({ connection, fiber, ids, peers, tries }) {
        peers[0]!.emit({ type, id: "e9" }, { type: "a", id: "e10" })
        yield* TestClock.adjust("1 second")
        expect(yield* Fiber.poll(fiber)).not.toEqual(Option.none())
        expect(yield* ids).toEqual(["e9"])
        expect(yield* stateOf(connection)).toBe("closed")
        expect(peers[0]!.isReleased()).toBe(true)
        expect(tries).toHaveLength(1)
      }
    )
  }

  read(
    "ends without dialling again if the socket drops after the last event",
    function* ({ fiber, ids, peers, tries }) {
      peers[0]!.emit({ type: "instance.stopped", id: "e9" })
      peers[0]!.drop()
      yield* Fiber.join(fiber)
      expect(yield* ids).toEqual(["e9"])
      yield* TestClock.adjust("1 hour")
      expect(tries).toHaveLength(1)
    }
  )

  read("skips frames that are no events", function* ({ ids, peers }) {
    peers[0]!.emit("{", "[]", { type: "" }, { id: "no type" }, { type: "a", id: "e1" })
    yield* TestClock.adjust(0)
    expect(yield* ids).toEqual(["e1"])
  })

  test.effect("lets everything go with its scope, and says so to its watchers", function* () {
    const { connect, peers, tries } = makePlatform("open")
    const scope = yield* Scope.make()
    const connection = yield* Scope.extend(connect(), scope)
    const { fiber } = yield* collect(connection)
    const states = yield* watch(connection)
    yield* Scope.close(scope, Exit.void)
    yield* Fiber.join(fiber)
    expect(yield* states).toEqual(["connected", "closed"])
    expect(peers[0]!.isReleased()).toBe(true)
    yield* TestClock.adjust("1 hour")
    expect(tries).toHaveLength(1)
  })
})
