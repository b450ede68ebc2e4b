/** Gateways that share one PostgreSQL and reach each other: a client of any of them has all sessions. */
import { readFileSync } from "node:fs"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { type Client, completeTurn, createSession } from "./Gateway/Socket/Fixture.ts"
import { execute } from "./postgres/Databases.ts"
import { reasonToSkip } from "./postgres/Server.ts"
import { onlyLong } from "./Scale.ts"
import * as Environment from "./service/Environment.ts"
import * as Gateways from "./service/Gateways.ts"

const linked = Gateways.make({ isLinked: true })

/** Of nodes that lose no session in a test, also on a machine that pauses for seconds. */
const longLease = { SESSION_LEASE: "1 minute" }

/** Makes the statement by which a node takes a session of another one as slow as on a database that is overloaded. */
const slowTransfer = [
  "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.6); RETURN NEW; END $$",
  `CREATE TRIGGER slow BEFORE UPDATE OF owner ON causeway.histories
    FOR EACH ROW WHEN (OLD.owner <> NEW.owner) EXECUTE FUNCTION slow()`
]

/** Repeats a message as a client does: while the answers are retryable. */
const sendUntilAccepted = (client: Client, sessionId: string, content: string, clientMessageId: string) =>
  Effect.repeat(Effect.delay(client.ask({ type: "send_message", sessionId, content, clientMessageId }), "100 millis"), {
    until: answer => answer.type !== "error" || !answer.error.retryable
  })

/** Reads the metrics of a node until they are as expected. Gauges are updated each second, or with the lease. */
const metrics = (url: string, isAwaited: (text: string) => boolean) =>
  Effect.repeat(
    Effect.delay(
      Effect.promise(async () => (await fetch(`${url}/metrics`)).text()),
      "50 millis"
    ),
    { until: isAwaited }
  )

const shows = (url: string, line: string) => metrics(url, text => text.includes(`\n${line}\n`))

const matches = (url: string, pattern: RegExp) => metrics(url, text => pattern.test(text))

/** The metrics and the health of a node with one session, and the metrics of another that has got an answer from it. */
const assertShown = (one: string, other: string) =>
  Effect.gen(function* () {
    yield* shows(one, "sessions_owned 1")
    yield* shows(one, "session_nodes 2")
    yield* shows(one, "postgres_listener_connected 1")
    yield* matches(other, /^sessions_forwarded_total\{outcome="answered"\} [1-9]/m)
    const page = readFileSync(new URL("../docs/operate/observability.md", import.meta.url), "utf8")
    // Some are read from the database after the start.
    for (const [, name] of page.matchAll(/^\| `((?:postgres_|session_(?!database)|sessions_)\w+)` \|/gm)) {
      yield* matches(other, new RegExp(`^${name}(?:_count)?(?:\\{.*\\})? \\S+$`, "m"))
    }
    const { node } = JSON.parse(yield* Effect.promise(async () => (await fetch(`${one}/health`)).text()))
    assert.deepInclude(node, { sessions: 1, nodes: 2 })
    // The opening of the session and its first events, in one group or several.
    yield* matches(one, /^session_commit_writes_sum [1-9]/m)
    yield* matches(one, /^session_commits_total\{outcome="ok"\} [1-9]/m)
    yield* shows(one, `session_node_info{node="${node.id}"} 1`)
  })

layer(Environment.layer, { excludeTestServices: true })(`gateways that reach each other ${reasonToSkip ?? ""}`, it => {
  if (reasonToSkip !== undefined) {
    it.skip("send requests to the node that has the session")
    return
  }

  onlyLong(it.scoped)("carry out every request for a session of another one, in the name of the client", () =>
    Effect.gen(function* () {
      const { startWith } = yield* linked
      const start = startWith(longLease)
      const [one, other] = yield* Effect.all([start, start], { concurrency: 2 })
      const [mine, theirs] = [yield* one.client, yield* other.clientOf("bob")]
      // Its secrets are with the node that created it, which therefore has it from the beginning.
      const sessionId = yield* createSession(mine, { secrets: { TOKEN: "hidden" as never } })
      const started = yield* theirs.get("session", { type: "start_session", sessionId })
      assert.strictEqual(started.session.state, "active")
      assert.isUndefined(started.session.missingSecrets)
      yield* mine.get("subscribed", { type: "subscribe", sessionId, afterSeq: 0 })
      const { turnId } = yield* theirs.get("accepted", { type: "send_message", sessionId, content: "/write a.md text" })
      yield* mine.untilEvent(sessionId, event => event.type === "turn_completed" && event.turnId === turnId)
      const begun = mine.events(sessionId).find(event => event.type === "turn_started")
      assert.deepInclude(begun, { sub: "bob", content: "/write a.md text" })
      assert.notProperty(begun, "clientMessageId")
      const { content } = yield* theirs.get("file_content", { type: "read_file", sessionId, path: "a.md" })
      assert.include(content, "text")
      yield* theirs.get("file_list", { type: "list_files", sessionId })
      yield* theirs.get("unsubscribed", { type: "unsubscribe", sessionId })
      const hanging = yield* theirs.get("accepted", { type: "send_message", sessionId, content: "/hang" })
      yield* theirs.get("accepted", { type: "interrupt_turn", sessionId, turnId: hanging.turnId! })
      yield* mine.untilEvent(sessionId, event => event.type === "turn_interrupted")
      const stopped = yield* theirs.get("session", { type: "stop_session", sessionId })
      assert.strictEqual(stopped.session.state, "inactive")
      const unknown = yield* theirs.ask({ type: "get_session", sessionId: "0".repeat(36) })
      assert.deepInclude(unknown, { type: "error" })
      yield* theirs.get("session_deleted", { type: "delete_session", sessionId })
      assert.include(JSON.stringify(yield* mine.ask({ type: "get_session", sessionId })), "not_found")
    })
  )

  it.scoped("give any subscriber the events of a session as they come, and those that it missed, and show it", () =>
    Effect.gen(function* () {
      const { serveWith, startWith } = yield* linked
      // Gauges that are read from the database are updated with the lease.
      const env = { METRICS_PROMETHEUS: "true", SESSION_LEASE: "15 seconds" }
      const [one, other] = yield* Effect.all([startWith(env), serveWith(env)], { concurrency: 2 })
      const [mine, theirs] = [yield* one.client, yield* other.client]
      const sessionId = yield* createSession(mine, { secrets: { TOKEN: "hidden" as never } })
      yield* mine.get("subscribed", { type: "subscribe", sessionId, afterSeq: 0 })
      const first = yield* completeTurn(mine, sessionId, "one two three")
      const answer = yield* theirs.get("subscribed", { type: "subscribe", sessionId, afterSeq: 0 })
      assert.deepInclude(answer.session, { state: "active", headSeq: answer.headSeq })
      assert.isUndefined(answer.session.missingSecrets)
      const { sessions } = yield* theirs.get("session_list", { type: "list_sessions" })
      assert.isUndefined(sessions[0]?.missingSecrets)
      yield* theirs.untilEvent(sessionId, event => event.type === "turn_completed" && event.turnId === first)
      const second = yield* completeTurn(mine, sessionId, "four five six")
      yield* theirs.untilEvent(sessionId, event => event.type === "turn_completed" && event.turnId === second)
      Gateways.isDense(theirs.events())
      const [given, seen] = [mine.events(), theirs.events()]
      // Either may be ahead by events after the end of the turn.
      const common = Math.min(given.length, seen.length)
      assert.deepStrictEqual(seen.slice(0, common), given.slice(0, common))
      // A client of the one continues at the other, at its last position.
      const third = yield* completeTurn(mine, sessionId, "seven")
      const last = mine.events().findLast(({ seq }) => seq < mine.events().length - 2)!.seq
      const next = yield* other.client
      const { epoch } = answer
      const resumed = yield* next.get("subscribed", { type: "subscribe", sessionId, afterSeq: last, epoch })
      assert.isTrue(resumed.recovered)
      yield* next.untilEvent(sessionId, event => event.type === "turn_completed" && event.turnId === third)
      const fourth = yield* completeTurn(next, sessionId, "eight")
      yield* mine.untilEvent(sessionId, event => event.type === "turn_completed" && event.turnId === fourth)
      assert.deepStrictEqual(
        next.events().map(({ seq }) => seq),
        next.events().map((_, index) => last + 1 + index)
      )
      yield* assertShown(one.url, other.url)
      yield* mine.get("session_deleted", { type: "delete_session", sessionId })
      for (const client of [mine, theirs, next]) {
        yield* client.until(frame => frame.type === "error" && frame.sessionId === sessionId)
      }
    })
  )

  onlyLong(it.scoped)("continue at once with a session whose node shuts down as planned, even with a long lease", () =>
    Effect.gen(function* () {
      const { simulator, startWith } = yield* linked
      const start = startWith(longLease)
      const [one, other] = yield* Effect.all([start, start], { concurrency: 2 })
      const theirs = yield* other.client
      const { completed, open, sessionId } = yield* Gateways.begin(yield* one.client)
      yield* theirs.get("subscribed", { type: "subscribe", sessionId, afterSeq: 0 })
      const turns: Array<string | undefined> = []
      const talk = Effect.gen(function* () {
        const id = `m${turns.length}`
        const answer = yield* sendUntilAccepted(theirs, sessionId, `message ${id}`, id)
        if (answer.type !== "accepted") return yield* Effect.dieMessage(JSON.stringify(answer))
        turns.push(answer.turnId)
        yield* theirs.untilEvent(sessionId, () => Gateways.endsOf(theirs.events(sessionId), answer.turnId).length > 0)
      })
      one.signal("SIGTERM")
      const { code } = yield* Effect.raceFirst(one.ended, Effect.forever(talk))
      assert.strictEqual(code, 0)
      // A single request, for which no lease ends.
      const after = yield* completeTurn(theirs, sessionId, "after the end")
      const events = theirs.events(sessionId)
      Gateways.isDense(events)
      assert.deepStrictEqual(Gateways.endsOf(events, completed), ["turn_completed"])
      assert.deepStrictEqual(Gateways.endsOf(events, open), ["turn_interrupted"])
      for (const turn of turns) assert.lengthOf(Gateways.endsOf(events, turn), 1)
      assert.deepStrictEqual(Gateways.endsOf(events, after), ["turn_completed"])
      yield* simulator.awaitState(({ instances }) => instances.length === 1)
    })
  )

  onlyLong(it.scoped)(
    "hand sessions with secrets over where they end as planned, and ask for secrets again where they are killed",
    () =>
      Effect.gen(function* () {
        const { simulator, start, url } = yield* linked
        const [one, other] = yield* Effect.all([start, start], { concurrency: 2 })
        const mine = yield* one.client
        const secrets = { TOKEN: "MARK-OF-A-SECRET" as never }
        const [used, unused] = [yield* createSession(mine, { secrets }), yield* createSession(mine, { secrets })]
        yield* mine.get("session", { type: "start_session", sessionId: used })
        yield* Effect.promise(() => execute(url, ...slowTransfer))
        one.signal("SIGTERM")
        assert.strictEqual((yield* one.ended).code, 0)
        yield* Effect.promise(() => execute(url, "DROP FUNCTION slow CASCADE"))
        const theirs = yield* other.client
        for (const sessionId of [used, unused]) {
          const { session } = yield* theirs.get("session", { type: "start_session", sessionId })
          assert.strictEqual(session.state, "active")
          assert.isUndefined(session.missingSecrets)
        }
        const { instances } = yield* simulator.state
        assert.deepStrictEqual(
          instances.map(({ secretNames }) => secretNames),
          [["TOKEN"], ["TOKEN"]]
        )
        const next = yield* start
        yield* other.end("SIGKILL")
        const last = yield* next.client
        const asked = yield* Effect.repeat(
          Effect.delay(last.ask({ type: "start_session", sessionId: unused }), "50 millis"),
          { until: answer => answer.type !== "error" || !answer.error.retryable }
        )
        assert.include(JSON.stringify(asked), "Secrets of the session were lost")
        for (const node of [one, other, next]) assert.notInclude(node.log(), "MARK-OF-A-SECRET")
      })
  )
})
