/** Tenants that take all they can get of what everybody shares, with an honest one beside them that is served. */
import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Layer, Option, Redacted } from "effect"
import * as EventsInMemory from "../../src/Gateway/SessionEvents/Memory.ts"
import { SessionEvents } from "../../src/Gateway/SessionEvents.ts"
import * as Memory from "../../src/Storage/Memory.ts"
import { codeOf, completeTurn, connect, createSession, make, type Options, until } from "./SocketFixture.ts"
import { secret, token } from "./survival/Token.ts"

const MiB = 1024 * 1024

const start = (options: Options) =>
  Effect.gen(function* () {
    const gateway = yield* make({ ...options, authentication: { secret: Option.some(Redacted.make(secret)) } })
    const running = yield* gateway.start
    const enter = (tenant: string) =>
      Effect.flatMap(token(tenant), bearer => connect(running.url, { headers: { authorization: `Bearer ${bearer}` } }))
    return { ...gateway, ...running, enter }
  })

describe("what tenants share", () => {
  it.scopedLive("files: a tenant whose clients do not read them keeps nobody from theirs", () =>
    Effect.gen(function* () {
      const { enter } = yield* start({ socket: { fileBytes: 40 * MiB } })
      const honest = yield* enter("acme")
      const own = yield* createSession(honest)
      yield* honest.get("subscribed", { type: "subscribe", sessionId: own })
      yield* completeTurn(honest, own, "/write own.txt honest")
      const first = yield* enter("evil")
      const sessionId = yield* createSession(first)
      yield* first.get("subscribed", { type: "subscribe", sessionId })
      yield* completeTurn(first, sessionId, `/write large.txt ${"x".repeat(900_000)}`)
      for (let count = 0; count < 17; count++) {
        const client = yield* enter("evil")
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
    })
  )

  it.scopedLive("connections: where all are taken, the tenant that has the most makes room for another", () =>
    Effect.gen(function* () {
      const { enter } = yield* start({ socket: { connections: 4 } })
      const hostile = yield* Effect.forEach([1, 2, 3, 4], () => enter("evil"))
      assert.strictEqual((yield* Effect.flip(enter("evil"))).status, 503)
      const honest = yield* enter("acme")
      assert.deepStrictEqual(yield* hostile[3]!.closed, { code: 4001, reason: "rate_limited" })
      const second = yield* enter("acme")
      assert.deepStrictEqual(yield* hostile[2]!.closed, { code: 4001, reason: "rate_limited" })
      // Each has half of them now.
      assert.strictEqual((yield* Effect.flip(enter("acme"))).status, 503)
      assert.strictEqual((yield* Effect.flip(enter("evil"))).status, 503)
      for (const client of [honest, second, hostile[0]!, hostile[1]!]) {
        assert.strictEqual((yield* client.ask({ type: "ping" })).type, "pong")
      }
      second.socket.close()
      yield* second.closed
      yield* enter("evil").pipe(Effect.retry({ while: ({ status }) => status === 503 }))
    })
  )

  it.scopedLive("replays: a tenant that reads many histories holds up nobody else's", () =>
    Effect.gen(function* () {
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
      const { enter } = yield* start({ stored: Layer.merge(Memory.layer, events) })
      const hostile = yield* enter("evil")
      const honest = yield* enter("acme")
      const sessions = yield* Effect.forEach(Array.from({ length: 20 }), () => createSession(hostile))
      const own = yield* createSession(honest)
      for (const sessionId of sessions) yield* hostile.get("subscribed", { type: "subscribe", sessionId })
      yield* Deferred.await(begun)
      yield* honest.get("subscribed", { type: "subscribe", sessionId: own })
      yield* Deferred.succeed(gate, undefined)
      yield* until(() => read.length >= 21)
      assert.isAtMost(read.indexOf("acme"), 2)
      assert.strictEqual(read.filter(tenant => tenant === "evil").length, 20)
    })
  )
})
