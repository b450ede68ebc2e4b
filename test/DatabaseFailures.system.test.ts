/** Two gateways over one PostgreSQL that restarts, refuses connections, or is behind a pooler in transaction mode. */
import { assert, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { type Client, completeTurn, createSession } from "./Gateway/Socket/Fixture.ts"
import * as Bouncer from "./postgres/Bouncer.ts"
import * as Databases from "./postgres/Databases.ts"
import * as Server from "./postgres/Server.ts"
import { isSoak, times } from "./Scale.ts"
import * as Environment from "./service/Environment.ts"
import * as Gateways from "./service/Gateways.ts"
import { key } from "./service/Service.ts"

const { reasonToSkip } = Server

/** The role of the gateways, which has settings that would break them if they did not set them back. */
const role = "hostile"

const settings = {
  statement_timeout: "300",
  lock_timeout: "1",
  idle_in_transaction_session_timeout: "100",
  idle_session_timeout: "300",
  default_transaction_isolation: "serializable",
  default_transaction_read_only: "on",
  default_transaction_deferrable: "on",
  standard_conforming_strings: "off",
  synchronous_commit: "off",
  client_encoding: "LATIN1",
  search_path: "nowhere",
  DateStyle: "German",
  TimeZone: "Asia/Kathmandu",
  bytea_output: "escape",
  array_nulls: "off",
  extra_float_digits: "0",
  client_min_messages: "debug1"
}

/** The status and the text of an answer. */
const request = (url: string, path: string, init: RequestInit = {}) =>
  Effect.promise(async () => {
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" }
    const response = await fetch(`${url}/api/v1${path}`, { ...init, headers })
    return { status: response.status, text: await response.text() }
  })

const make = Effect.gen(function* () {
  const database = yield* Databases.server({ ...Server.fast, synchronous_commit: "on" })
  const url = yield* Effect.promise(() => Databases.createDatabase(database))
  yield* Effect.promise(() =>
    Databases.execute(
      url,
      `CREATE ROLE ${role} LOGIN`,
      `GRANT CREATE ON DATABASE ${new URL(url).pathname.slice(1)} TO ${role}`,
      ...Object.entries(settings).map(([name, value]) => `ALTER ROLE ${role} SET ${name} = '${value}'`)
    )
  )
  const { start } = yield* Gateways.make({
    isLinked: true,
    env: { STORE_URL: url.replace("postgres@", `${role}@`), SESSION_LEASE: "10 seconds" }
  })
  const [one, other] = yield* Effect.all([start, start], { concurrency: 2 })
  // Until the settings of the role are set back, its time limits may be too short on a busy machine.
  for (const { url } of [one, other]) {
    yield* Effect.repeat(Effect.delay(request(url, "/ready"), "20 millis"), {
      until: ({ text }) => text === '{"ok":true}'
    })
  }
  return { database, url, one, other }
})

/** The gateways of this file, with their server. */
class Pair extends Context.Tag("test/Pair")<Pair, Effect.Effect.Success<typeof make>>() {
  static readonly layer = Layer.provideMerge(
    reasonToSkip === undefined ? Layer.scoped(Pair, make) : Layer.empty,
    Environment.layer
  ) as Layer.Layer<Pair | Layer.Layer.Success<typeof Environment.layer>, unknown>
}

/** Sends messages one after the other until it is stopped, each until it is accepted. */
const talk = (client: Client, sessionId: string, name: string, sent: Array<Gateways.Message>, isOver: () => boolean) =>
  Effect.gen(function* () {
    while (!isOver()) {
      const content = `${name} ${sent.length}`
      const answer = yield* Effect.repeat(
        Effect.delay(client.ask({ type: "send_message", sessionId, content, clientMessageId: content }), "10 millis"),
        { until: answer => answer.type !== "error" || !answer.error.retryable }
      )
      if (answer.type !== "accepted") return yield* Effect.dieMessage(JSON.stringify(answer))
      sent.push({ content, turnId: answer.turnId })
    }
  })

layer(Pair.layer, { excludeTestServices: true })(`gateways over one PostgreSQL ${reasonToSkip ?? ""}`, it => {
  if (reasonToSkip !== undefined) {
    it.skip("continue while it fails")
    return
  }

  it.scoped("continue with their connections while it refuses more", () =>
    Effect.gen(function* () {
      const { one, other, url } = yield* Pair
      const [mine, theirs] = [yield* one.client, yield* other.client]
      const sessionId = yield* createSession(mine)
      for (const client of [mine, theirs])
        yield* client.get("subscribed", { type: "subscribe", sessionId, afterSeq: 0 })
      yield* completeTurn(mine, sessionId, "first")
      const value = "\u00FC\u20AC\u{1D11E}\u0000\\"
      for (const { url } of [one, other]) {
        yield* request(url, "/kv/n/k", { method: "PUT", body: JSON.stringify({ value }) })
        for (const path of ["/kv/n", "/kv/n/k"]) assert.include((yield* request(url, path)).text, JSON.stringify(value))
      }
      const limit = (to: string) =>
        Effect.promise(() => Databases.execute(url, `ALTER ROLE ${role} CONNECTION LIMIT ${to}`))
      yield* Effect.acquireRelease(limit("0"), () => limit("-1"))
      const requests = [one, other].flatMap(({ url }) => [
        ...Array.from({ length: 20 }, () => request(url, "/kv/n?limit=10")),
        ...Array.from({ length: 20 }, () => request(url, "/kv/n/k")),
        request(url, "/kv/n/k", { method: "PUT", body: JSON.stringify({ value }) })
      ])
      const answers = yield* Effect.all(requests, { concurrency: "unbounded" })
      assert.deepStrictEqual(
        answers.filter(({ status }) => status !== 200),
        []
      )
      for (const client of [mine, theirs]) yield* completeTurn(client, sessionId, "again")
    })
  )

  it.scoped("lose no message that was accepted and carry none out twice while it restarts", () =>
    Effect.gen(function* () {
      const { database, one, other } = yield* Pair
      const clients = [yield* one.client, yield* other.client]
      const sessionId = yield* createSession(clients[0]!)
      for (const client of clients) {
        yield* client.get("subscribed", { type: "subscribe", sessionId, afterSeq: 0 })
      }
      let isOver = false
      const sent = clients.map((): Array<Gateways.Message> => [])
      const talking = yield* Effect.forEach(clients, (client, index) =>
        Effect.fork(talk(client, sessionId, `client ${index}`, sent[index]!, () => isOver))
      )
      const more = Effect.suspend(() => {
        const before = sent.map(({ length }) => length)
        return Effect.repeat(Effect.sleep("5 millis"), {
          until: () => sent.every(({ length }, index) => length >= before[index]! + 5)
        })
      })
      for (let round = 0; round < times(1); round++) {
        for (const mode of ["fast", "immediate"] as const) {
          yield* more
          yield* Effect.promise(() => database.stop(mode))
          yield* Effect.promise(() => database.start())
        }
      }
      yield* more
      isOver = true
      yield* Effect.forEach(talking, fiber => fiber)
      const late = yield* other.client
      yield* Gateways.follow(late, sessionId)
      for (const { turnId } of sent.flat()) {
        yield* late.untilEvent(sessionId, event => Gateways.endsOf([event], turnId).length > 0)
      }
      const events = late.events(sessionId)
      for (const messages of sent) Gateways.checkHistory(events, messages)
      // All subscribers have the same events, each once and in order.
      for (const client of clients) {
        yield* client.untilEvent(sessionId, ({ seq }) => seq === events.length)
        assert.deepStrictEqual(client.events(sessionId).slice(0, events.length), events)
      }
    })
  )
})

layer(Environment.layer, { excludeTestServices: true })(
  `gateways behind a pooler ${reasonToSkip ?? Bouncer.reasonToSkip ?? ""}`,
  it => {
    it.scoped.skipIf((reasonToSkip ?? Bouncer.reasonToSkip) !== undefined)(
      "own sessions and take them over, whether the database itself is named to them or not",
      () =>
        Effect.gen(function* () {
          const url = yield* Effect.promise(() => Databases.createDatabase())
          const pooler = yield* Bouncer.make(url)
          const { simulator, start, startWith } = yield* Gateways.make({
            isLinked: true,
            env: { STORE_URL: pooler, SESSION_LEASE: "5 seconds" }
          })
          const round = (first: typeof start, second: typeof start) =>
            Effect.gen(function* () {
              const [owner, heir] = yield* Effect.all([first, second], { concurrency: 2 })
              const { completed, open, sessionId } = yield* Gateways.begin(yield* owner.client)
              const theirs = yield* heir.client
              yield* Gateways.follow(theirs, sessionId)
              yield* owner.end("SIGKILL")
              yield* simulator.awaitState(({ instances }) => instances.length === 0)
              yield* theirs.untilEvent(sessionId, event => Gateways.endsOf([event], open).length > 0)
              const events = yield* Gateways.follow(yield* heir.client, sessionId)
              Gateways.checkHistory(events, [{ content: "one two three", turnId: completed }])
              assert.deepStrictEqual(Gateways.endsOf(events, open), ["turn_errored"])
              yield* completeTurn(theirs, sessionId, "again")
            })
          const direct = startWith({ STORE_DIRECT_URL: url })
          yield* Effect.scoped(round(direct, start))
          if (isSoak) yield* Effect.scoped(round(start, direct))
        })
    )
  }
)
