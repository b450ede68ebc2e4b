/** Gateways that share one PostgreSQL: each session belongs to one of them at a time. */
import { assert, layer } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import type { Event } from "../src/Gateway/Protocol.ts"
import { completeTurn, createSession } from "./Gateway/Socket/Fixture.ts"
import { reasonToSkip } from "./postgres/Server.ts"
import { onlyLong } from "./Scale.ts"
import * as Environment from "./service/Environment.ts"
import * as Gateways from "./service/Gateways.ts"

layer(Environment.layer, { excludeTestServices: true })(`gateways with one PostgreSQL ${reasonToSkip ?? ""}`, it => {
  if (reasonToSkip !== undefined) {
    it.skip("own each session one at a time")
    return
  }

  it.scoped("take the sessions of one that is killed over: open turns end once, and no instance is left", () =>
    Effect.gen(function* () {
      const { serve, simulator, start } = yield* Gateways.make()
      const [one, other] = yield* Effect.all([start, serve], { concurrency: 2 })
      const { completed, open, sessionId } = yield* Gateways.begin(yield* one.client)
      yield* one.end("SIGKILL")
      // No request for the session is needed.
      yield* simulator.awaitState(({ instances }) => instances.length === 0)
      const theirs = yield* other.client
      const events = yield* Gateways.follow(theirs, sessionId)
      Gateways.isDense(events)
      assert.deepStrictEqual(Gateways.endsOf(events, completed), ["turn_completed"])
      assert.deepStrictEqual(Gateways.endsOf(events, open), ["turn_errored"])
      yield* completeTurn(theirs, sessionId, "are you there?")
    })
  )

  it.scoped("show the conversation of a session of another one, and what follows", () =>
    Effect.gen(function* () {
      const { serve } = yield* Gateways.make()
      const [one, other] = yield* Effect.all([serve, serve], { concurrency: 2 })
      const mine = yield* one.client
      const sessionId = yield* createSession(mine)
      yield* mine.get("subscribed", { type: "subscribe", sessionId })
      yield* completeTurn(mine, sessionId, "first")
      const theirs = yield* other.client
      const folded = yield* theirs.get("subscribed", { type: "subscribe", sessionId, fold: true })
      const part = yield* theirs.until(frame => frame.type === "conversation" && frame.last)
      assert.isTrue(part.type === "conversation" && part.seq >= folded.headSeq && part.text.includes("first"))
      const turn = yield* completeTurn(mine, sessionId, "second")
      yield* theirs.untilEvent(sessionId, event => event.type === "turn_completed" && event.turnId === turn)
      const seqs = theirs.events(sessionId).map(({ seq }) => seq)
      assert.strictEqual(seqs[0], (part as { readonly seq: number }).seq + 1)
      const { id } = yield* theirs.get("subscribed", { type: "subscribe", sessionId, beforeSeq: 4, limit: 2 })
      yield* theirs.until(frame => frame.type === "subscription_ended" && frame.id === id)
      assert.deepStrictEqual(
        theirs
          .events(sessionId)
          .slice(-2)
          .map(({ seq }) => seq),
        [2, 3]
      )
    })
  )

  onlyLong(it.scoped)(
    "one that is stopped for longer than its lease finds its sessions taken, and writes nothing to them",
    () =>
      Effect.gen(function* () {
        const { simulator, start } = yield* Gateways.make()
        const [one, other] = yield* Effect.all([start, start], { concurrency: 2 })
        const mine = yield* one.client
        const { open, sessionId } = yield* Gateways.begin(mine)
        one.signal("SIGSTOP")
        yield* simulator.awaitState(({ instances }) => instances.length === 0)
        const theirs = yield* other.client
        yield* Gateways.follow(theirs, sessionId)
        one.signal("SIGCONT")
        // It learns this from its lease, without a request: subscribers have to reconnect.
        yield* mine.closed
        const again = yield* one.client
        const refused = yield* again.ask({ type: "send_message", sessionId, content: "hello" })
        assert.include(JSON.stringify(refused), "belongs to another node")
        yield* completeTurn(theirs, sessionId, "still there?")
        const events = theirs.events(sessionId)
        Gateways.isDense(events)
        assert.deepStrictEqual(Gateways.endsOf(events, open), ["turn_errored"])
        // The node has not written the record of the session either.
        yield* one.end("SIGTERM")
        assert.strictEqual((yield* theirs.get("session", { type: "get_session", sessionId })).session.state, "active")
      })
  )

  onlyLong(it.scoped)(
    "one that is stopped in a deletion leaves the session, once another one has taken it, to that one",
    () =>
      Effect.gen(function* () {
        const { start } = yield* Gateways.make()
        const [one, other] = yield* Effect.all([start, start], { concurrency: 2 })
        const mine = yield* one.client
        const sessionId = yield* createSession(mine)
        yield* mine.get("subscribed", { type: "subscribe", sessionId, afterSeq: 0 })
        const completed = yield* completeTurn(mine, sessionId, "hello")
        // Without an instance there is nothing to write before the record is removed.
        yield* mine.get("session", { type: "stop_session", sessionId })
        one.signal("SIGSTOP")
        const answer = yield* Effect.fork(mine.ask({ type: "delete_session", sessionId }))
        const theirs = yield* other.client
        yield* Gateways.follow(theirs, sessionId)
        // Until the lease of the other one has expired, the session belongs to that one.
        const accepted = yield* Effect.repeat(
          Effect.delay(theirs.ask({ type: "send_message", sessionId, content: "hello again" }), "50 millis"),
          { until: ({ type }) => type === "accepted" }
        )
        assert(accepted.type === "accepted")
        const isEnd = (event: Event) => event.type === "turn_completed" && event.turnId === accepted.turnId
        yield* theirs.untilEvent(sessionId, isEnd)
        one.signal("SIGCONT")
        // It is answered, or its connection ends as those of all subscribers of a session that was taken.
        yield* Effect.race(Effect.exit(Fiber.join(answer)), mine.closed)
        yield* one.end("SIGTERM")
        const { sessions } = yield* theirs.get("session_list", { type: "list_sessions" })
        assert.deepStrictEqual(
          sessions.map(({ id }) => id),
          [sessionId]
        )
        const events = theirs.events(sessionId)
        Gateways.isDense(events)
        assert.deepStrictEqual(Gateways.endsOf(events, completed), ["turn_completed"])
        yield* theirs.get("session_deleted", { type: "delete_session", sessionId })
      })
  )
})
