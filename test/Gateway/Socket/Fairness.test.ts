/** Tenants that take as much of the shared resources as they can, and an honest tenant that is served nevertheless. */
import { Socket } from "node:net"
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Duration, Effect, Layer, Tracer } from "effect"
import * as EventsInMemory from "../../../src/Gateway/SessionEvents/Memory.ts"
import { SessionEvents } from "../../../src/Gateway/SessionEvents.ts"
import * as Memory from "../../../src/Storage/Memory.ts"
import { given } from "../../Given.ts"
import { test } from "../../Tests.ts"
import { codeOf, completeTurn, createSession, until } from "./Fixture.ts"
import { makeTenants } from "./Tenants.ts"

const MiB = 1024 * 1024

const fewActivations = { settings: { activations: 4, stopping: Duration.zero } }

const sharing = given(it.scopedLive, makeTenants)

describe("what tenants share", () => {
  sharing(
    "files: clients that do not read block no other tenant",
    { socket: { fileBytes: 40 * MiB } },
    function* ({ connectAs }) {
      const honest = yield* connectAs("acme")
      const own = yield* createSession(honest)
      yield* honest.get("subscribed", { type: "subscribe", sessionId: own })
      yield* completeTurn(honest, own, "/write own.txt honest")
      const first = yield* connectAs("evil")
      const sessionId = yield* createSession(first)
      yield* first.get("subscribed", { type: "subscribe", sessionId })
      yield* completeTurn(first, sessionId, `/write large.txt ${"x".repeat(900_000)}`)
      for (let count = 0; count < 17; count++) {
        const client = yield* connectAs("evil")
        client.socket.pause()
        for (let id = 0; id < 40; id++) {
          yield* client.send(JSON.stringify({ type: "read_file", id: String(id), sessionId, path: "large.txt" }))
        }
      }
      // As often as what was sent to those who did not read could be lost sight of.
      for (let count = 0; count < 5; count++) {
        const answer = yield* honest.ask({ type: "read_file", sessionId: own, path: "own.txt" })
        assert.strictEqual(codeOf(answer), "file_content")
      }
    }
  )

  sharing(
    "conversations: clients that do not read block no other tenant",
    { socket: { fileBytes: 64 * MiB } },
    function* ({ connectAs }) {
      const evil = yield* connectAs("evil")
      const sessionId = yield* createSession(evil)
      yield* evil.get("subscribed", { type: "subscribe", sessionId })
      for (let turn = 0; turn < 4; turn++) yield* completeTurn(evil, sessionId, "x".repeat(900_000))
      for (let count = 0; count < 20; count++) {
        const client = yield* connectAs("evil")
        client.socket.pause()
        yield* client.send(JSON.stringify({ type: "subscribe", id: "1", sessionId, fold: true }))
      }
      const honest = yield* connectAs("acme")
      const own = yield* createSession(honest)
      yield* honest.get("subscribed", { type: "subscribe", sessionId: own, untilSeq: 0 })
      for (let count = 1; count <= 5; count++) {
        yield* honest.get("subscribed", { type: "subscribe", sessionId: own, fold: true })
        const isLast = (frame: { readonly type: string }) => frame.type === "conversation"
        yield* until(() => honest.frames.filter(isLast).length === count)
      }
    }
  )

  test.scopedLive("the event loop: requests that a client sends at once start in separate turns", function* () {
    let turn = 0
    const next = () => {
      turn++
      immediate = setImmediate(next)
    }
    let immediate = setImmediate(next)
    yield* Effect.addFinalizer(() => Effect.sync(() => clearImmediate(immediate)))
    const begun: Array<number> = []
    const tracer = yield* Effect.tracer
    const counting = Tracer.make({
      context: (f, fiber) => tracer.context(f, fiber),
      span: (name, ...rest) => {
        if (name === "Gateway.get_session") begun.push(turn)
        return tracer.span(name, ...rest)
      }
    })
    const { connectAs } = yield* Effect.withTracer(makeTenants(), counting)
    const client = yield* connectAs("evil")
    const wire: unknown = Reflect.get(client.socket, "_socket")
    assert.instanceOf(wire, Socket)
    wire.cork()
    for (let id = 0; id < 50; id++) {
      yield* client.send(JSON.stringify({ type: "get_session", id: String(id), sessionId: "none" }))
    }
    wire.uncork()
    yield* client.until(frame => "id" in frame && frame.id === "49")
    assert.lengthOf(begun, 50)
    assert.strictEqual(new Set(begun).size, 50)
  })

  sharing(
    "connections: the tenant with the most makes room for another",
    { socket: { connections: 4 } },
    function* ({ connectAs }) {
      const hostile = yield* Effect.forEach([1, 2, 3, 4], () => connectAs("evil"))
      assert.strictEqual((yield* Effect.flip(connectAs("evil"))).status, 503)
      const honest = yield* connectAs("acme")
      assert.deepStrictEqual(yield* hostile[3]!.closed, { code: 4001, reason: "rate_limited" })
      const second = yield* connectAs("acme")
      assert.deepStrictEqual(yield* hostile[2]!.closed, { code: 4001, reason: "rate_limited" })
      // Each has half of them now.
      assert.strictEqual((yield* Effect.flip(connectAs("acme"))).status, 503)
      assert.strictEqual((yield* Effect.flip(connectAs("evil"))).status, 503)
      for (const client of [honest, second, hostile[0]!, hostile[1]!]) {
        assert.strictEqual((yield* client.ask({ type: "ping" })).type, "pong")
      }
      second.socket.close()
      yield* second.closed
      yield* connectAs("evil").pipe(Effect.retry({ while: ({ status }) => status === 503 }))
    }
  )

  test.scopedLive("replays: a tenant that reads many histories does not delay others", function* () {
    const begun = yield* Deferred.make<void>()
    const gate = yield* Deferred.make<void>()
    const read: Array<string> = []
    const events = Layer.effect(
      SessionEvents,
      Effect.map(SessionEvents, events => ({
        ...events,
        read: (session: string, after: number, limit: number) =>
          Effect.sync(() => read.push(session.split("/")[0]!)).pipe(
            Effect.zipRight(Deferred.succeed(begun, undefined)),
            Effect.zipRight(Deferred.await(gate)),
            Effect.zipRight(events.read(session, after, limit))
          )
      }))
    ).pipe(Layer.provide(EventsInMemory.layer()))
    const { connectAs } = yield* makeTenants({ stored: Layer.merge(Memory.layer, events) })
    const hostile = yield* connectAs("evil")
    const honest = yield* connectAs("acme")
    const sessions = yield* Effect.forEach(Array.from({ length: 20 }), () => createSession(hostile))
    const own = yield* createSession(honest)
    for (const sessionId of sessions) yield* hostile.get("subscribed", { type: "subscribe", sessionId })
    yield* Deferred.await(begun)
    yield* honest.get("subscribed", { type: "subscribe", sessionId: own })
    // While no read of the other tenant ends.
    yield* until(() => read.includes("acme"))
    yield* Deferred.succeed(gate, undefined)
    yield* until(() => read.length >= 21)
    assert.strictEqual(read.filter(tenant => tenant === "evil").length, 20)
  })

  sharing(
    "secrets: who fills their memory loses its own oldest ones to others",
    { settings: { secretBytes: 4000 } },
    function* ({ connectAs, simulator }) {
      const hostile = yield* connectAs("evil")
      const honest = yield* connectAs("acme")
      const secrets = { TOKEN: "x".repeat(900) }
      const made: Array<string> = []
      for (;;) {
        const answer = yield* hostile.ask({ type: "create_session", agentType: "echo", secrets })
        if (answer.type !== "session_created") {
          assert.strictEqual(codeOf(answer), "rate_limited")
          break
        }
        made.push(answer.session.id)
      }
      assert.strictEqual(made.length, 4)
      const own = yield* createSession(honest, { secrets })
      yield* honest.get("session", { type: "start_session", sessionId: own })
      const { instances } = yield* simulator.state
      assert.deepStrictEqual(
        instances.map(({ secretNames }) => secretNames),
        [["TOKEN"]]
      )
      const missing = yield* Effect.forEach(made, sessionId =>
        Effect.map(hostile.get("session", { type: "get_session", sessionId }), ({ session }) => session.missingSecrets)
      )
      assert.deepStrictEqual(missing, [["TOKEN"], undefined, undefined, undefined])
      assert.strictEqual(codeOf(yield* hostile.ask({ type: "start_session", sessionId: made[0]! })), "conflict")
      assert.strictEqual(
        codeOf(yield* hostile.ask({ type: "start_session", sessionId: made[0]!, secrets })),
        "rate_limited"
      )
    }
  )

  sharing(
    "memory: sessions only followed, or idle, are evicted for others",
    { settings: { inMemory: 4 } },
    function* ({ connectAs, simulator }) {
      const follower = yield* connectAs("evil")
      const hostile = yield* connectAs("evil")
      const honest = yield* connectAs("acme")
      const followed = yield* Effect.forEach([1, 2], () => createSession(hostile))
      const idle = yield* Effect.forEach([1, 2], () => createSession(hostile))
      for (const sessionId of followed) yield* follower.get("subscribed", { type: "subscribe", sessionId })
      for (const sessionId of idle) yield* hostile.get("session", { type: "start_session", sessionId })
      const first = yield* createSession(honest)
      yield* honest.get("session", { type: "start_session", sessionId: first })
      assert.strictEqual((yield* follower.closed).code, 4008)
      // Both that were followed have no followers any longer. After them an unused instance is stopped.
      const second = yield* createSession(honest)
      yield* honest.get("session", { type: "start_session", sessionId: second })
      assert.strictEqual((yield* simulator.state).instances.length, 4)
      // Now each has two, and nothing is reclaimed from a tenant that does not have more.
      const third = yield* createSession(honest)
      assert.strictEqual(codeOf(yield* honest.ask({ type: "get_session", sessionId: third })), "rate_limited")
    }
  )

  sharing(
    "memory: a tenant with turns in all sessions leaves slots to others",
    { settings: { inMemory: 8 } },
    function* ({ connectAs }) {
      const hostile = yield* connectAs("evil")
      const honest = yield* connectAs("acme")
      const codes = yield* Effect.forEach(Array.from({ length: 8 }), () =>
        Effect.gen(function* () {
          const sessionId = yield* createSession(hostile)
          return codeOf(yield* hostile.ask({ type: "send_message", sessionId, content: "/hang" }))
        })
      )
      assert.deepStrictEqual(codes, [...Array.from({ length: 7 }, () => "accepted"), "rate_limited"])
      const own = yield* createSession(honest)
      assert.strictEqual((yield* honest.ask({ type: "start_session", sessionId: own })).type, "session")
    }
  )

  sharing("activations: hanging ones leave some for others", fewActivations, function* ({ connectAs, simulator }) {
    yield* simulator.inject({ operation: "create", times: 3, fault: { kind: "hang" } })
    const hostile = yield* connectAs("evil")
    const honest = yield* connectAs("acme")
    const sessions = yield* Effect.forEach(Array.from({ length: 8 }), () => createSession(hostile))
    for (const [index, sessionId] of sessions.entries()) {
      yield* hostile.send(JSON.stringify({ type: "start_session", id: String(index), sessionId }))
    }
    yield* simulator.awaitState(({ requests }) => requests.create === 3)
    const own = yield* createSession(honest)
    yield* honest.get("session", { type: "start_session", sessionId: own })
    assert.strictEqual((yield* simulator.state).requests.create, 4)
  })
})
