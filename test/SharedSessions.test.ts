/** Gateways that share one PostgreSQL: each session belongs to one of them at a time. */
import { assert, layer } from "@effect/vitest"
import { Effect, type Scope } from "effect"
import { type Event, turnEnds } from "../src/Gateway/Protocol.ts"
import * as Simulator from "../src/Simulator/Simulator.ts"
import { type Client, codeOf, completeTurn, connect, createSession } from "./Gateway/SocketFixture.ts"
import { secret, token } from "./Gateway/survival/Token.ts"
import { createDatabase } from "./postgres/Databases.ts"
import { reasonToSkip } from "./postgres/Server.ts"
import * as Environment from "./service/Environment.ts"
import * as Service from "./service/Service.ts"

const ends: ReadonlySet<string> = new Set(turnEnds)

/** Gateways over one database and one platform, each with a directory of its own. */
const shared = Effect.gen(function* () {
  const url = yield* Effect.promise(() => createDatabase())
  const simulator = yield* Simulator.make({ seed: "shared", pace: "1 millis" })
  const bearer = yield* token("acme")
  const start = Effect.gen(function* () {
    const directory = yield* Environment.temporaryDirectory
    const service = yield* Service.start({
      directory,
      env: {
        STORE_URL: url,
        SESSION_LEASE: "1 second",
        AGENT_PLATFORM_URL: simulator.platformUrl,
        GATEWAY_JWT_SECRET: secret,
        LOG_LEVEL: "info"
      }
    })
    const client: Effect.Effect<Client, never, Scope.Scope> = Effect.orDie(
      connect(`${service.url.replace("http", "ws")}/ws`, { headers: { authorization: `Bearer ${bearer}` } })
    )
    return { ...service, client }
  })
  return { simulator, start }
})

/** Subscribes from the first event on as soon as the node has the session, and waits until all events have come. */
const follow = (client: Client, sessionId: string) =>
  Effect.gen(function* () {
    const answer = yield* Effect.repeat(
      Effect.delay(client.ask({ type: "subscribe", sessionId, afterSeq: 0 }), "50 millis"),
      { until: answer => answer.type !== "error" || !answer.error.retryable }
    )
    if (answer.type !== "subscribed") return yield* Effect.dieMessage(JSON.stringify(answer))
    if (answer.headSeq > 0) yield* client.untilEvent(sessionId, ({ seq }) => seq === answer.headSeq)
    return client.events(sessionId)
  })

const turnOf = (event: Event) => ("turnId" in event ? event.turnId : undefined)

const endsOf = (events: ReadonlyArray<Event>, turnId: string | undefined) =>
  events.filter(event => ends.has(event.type) && turnOf(event) === turnId).map(({ type }) => type)

const isDense = (events: ReadonlyArray<Event>) =>
  assert.deepStrictEqual(
    events.map(({ seq }) => seq),
    events.map((_, index) => index + 1)
  )

/** A session of a node, with one turn completed and one that does not end. */
const begin = (client: Client) =>
  Effect.gen(function* () {
    const sessionId = yield* createSession(client)
    yield* client.get("subscribed", { type: "subscribe", sessionId, afterSeq: 0 })
    const completed = yield* completeTurn(client, sessionId, "one two three")
    const { turnId } = yield* client.get("accepted", { type: "send_message", sessionId, content: "/hang" })
    yield* client.untilEvent(sessionId, event => event.type === "turn_started" && turnOf(event) === turnId)
    return { sessionId, completed, open: turnId }
  })

layer(Environment.layer, { excludeTestServices: true })(`gateways with one PostgreSQL ${reasonToSkip ?? ""}`, it => {
  if (reasonToSkip !== undefined) {
    it.skip("own each session one at a time")
    return
  }

  it.scoped(
    "refuse a session that belongs to another one, and say so; they list it, and have it when that one ends",
    () =>
      Effect.gen(function* () {
        const { start } = yield* shared
        const [one, other] = yield* Effect.all([start, start], { concurrency: 2 })
        const [mine, theirs] = [yield* one.client, yield* other.client]
        const sessionId = yield* createSession(mine)
        yield* mine.get("subscribed", { type: "subscribe", sessionId, afterSeq: 0 })
        const completed = yield* completeTurn(mine, sessionId, "hello")
        const refused = yield* theirs.ask({ type: "send_message", sessionId, content: "hello" })
        assert.strictEqual(codeOf(refused), "conflict")
        assert.include(JSON.stringify(refused), "belongs to another node")
        const { sessions } = yield* theirs.get("session_list", { type: "list_sessions" })
        assert.deepStrictEqual(
          sessions.map(({ id }) => id),
          [sessionId]
        )
        yield* one.end("SIGTERM")
        const events = yield* follow(theirs, sessionId)
        isDense(events)
        assert.deepStrictEqual(endsOf(events, completed), ["turn_completed"])
        yield* completeTurn(theirs, sessionId, "hello again")
      })
  )

  it.scoped("take the sessions of one that is killed over: open turns end once, and no instance is left", () =>
    Effect.gen(function* () {
      const { simulator, start } = yield* shared
      const [one, other] = yield* Effect.all([start, start], { concurrency: 2 })
      const { completed, open, sessionId } = yield* begin(yield* one.client)
      yield* one.end("SIGKILL")
      // Nobody has to ask for the session.
      yield* simulator.awaitState(({ instances }) => instances.length === 0)
      const theirs = yield* other.client
      const events = yield* follow(theirs, sessionId)
      isDense(events)
      assert.deepStrictEqual(endsOf(events, completed), ["turn_completed"])
      assert.deepStrictEqual(endsOf(events, open), ["turn_errored"])
      yield* completeTurn(theirs, sessionId, "are you there?")
    })
  )

  it.scoped("one that is stopped for longer than its lease finds its sessions taken, and writes nothing to them", () =>
    Effect.gen(function* () {
      const { simulator, start } = yield* shared
      const [one, other] = yield* Effect.all([start, start], { concurrency: 2 })
      const mine = yield* one.client
      const { open, sessionId } = yield* begin(mine)
      one.signal("SIGSTOP")
      yield* simulator.awaitState(({ instances }) => instances.length === 0)
      const theirs = yield* other.client
      yield* follow(theirs, sessionId)
      one.signal("SIGCONT")
      // It is told by its lease, without anybody asking: subscribers have to connect again.
      yield* mine.closed
      const again = yield* one.client
      const refused = yield* again.ask({ type: "send_message", sessionId, content: "hello" })
      assert.include(JSON.stringify(refused), "belongs to another node")
      yield* completeTurn(theirs, sessionId, "still there?")
      const events = theirs.events(sessionId)
      isDense(events)
      assert.deepStrictEqual(endsOf(events, open), ["turn_errored"])
      // The node has not written the record of the session either.
      yield* one.end("SIGTERM")
      assert.strictEqual((yield* theirs.get("session", { type: "get_session", sessionId })).session.state, "active")
    })
  )
})
