/** Commands of the service as a whole, and of its sessions, against a whole service. */
import { assert, layer } from "@effect/vitest"
import { Effect, Fiber, Layer } from "effect"
import * as Simulator from "../../src/Simulator/Simulator.ts"
import { completeTurn, connect, createSession } from "../Gateway/Socket/Fixture.ts"
import { secret, token } from "../Gateway/survival/Token.ts"
import { keys } from "../Harness.ts"
import { serve } from "../service/InProcess.ts"
import { testsOf } from "../Tests.ts"
import { call, linesOf, of, run, Setting } from "./Setting.ts"

const setting = Layer.scoped(
  Setting,
  Effect.gen(function* () {
    const simulator = yield* Simulator.make({ seed: "cli", pace: "1 millis" })
    const { url } = yield* serve({
      KV_API_KEY: keys.write,
      AGENT_PLATFORM_URL: simulator.platformUrl,
      GATEWAY_JWT_SECRET: secret
    })
    return yield* of(url, { CAUSEWAY_SESSION_TOKEN: yield* token("acme") })
  })
).pipe(Layer.orDie)

/** A session of the user. */
const newSession = Effect.gen(function* () {
  const { env, url } = yield* Setting
  const headers = { authorization: `Bearer ${env.CAUSEWAY_SESSION_TOKEN}` }
  return yield* createSession(yield* connect(`${url.replace("http", "ws")}/ws`, { headers }))
})

/** What the agent says in updates. */
const textOf = (updates: ReadonlyArray<Record<string, unknown>>): string =>
  updates
    .map(({ event }) => event as { readonly type: string; readonly text: string } | undefined)
    .map(event => (event?.type === "text_delta" ? event.text : ""))
    .join("")

layer(setting, { excludeTestServices: true })("commands", it => {
  const test = testsOf(it)
  test.effect("prints health and the documents", function* () {
    const health = yield* call(["health", "--strict"], { CAUSEWAY_TOKEN: "" })
    assert.include(health.stdout, '"ready":true')
    assert.strictEqual(health.code, JSON.parse(health.stdout).status === "ok" ? 0 : 1)
    const shown = yield* call(["health"], {}, true)
    assert.match(shown.stdout, /store +ready\n/)
    assert.strictEqual(shown.code, 0)
    const own = yield* call(["openapi"])
    const served = yield* call(["openapi", "--from-service"])
    assert.strictEqual(JSON.parse(own.stdout).openapi, "3.0.3")
    assert.deepStrictEqual(
      Object.keys(JSON.parse(served.stdout).paths).sort(),
      Object.keys(JSON.parse(own.stdout).paths).sort()
    )
    const protocol = yield* call(["openapi", "--asyncapi", "--from-service"])
    assert.match(JSON.parse(protocol.stdout).asyncapi, /^3\./)
  })

  test.scoped("lists, shows and prints sessions", function* () {
    const { url } = yield* Setting
    const own = { CAUSEWAY_SESSION_TOKEN: yield* token("lists") }
    const headers = { authorization: `Bearer ${own.CAUSEWAY_SESSION_TOKEN}` }
    const client = yield* connect(`${url.replace("http", "ws")}/ws`, { headers })
    const id = yield* createSession(client)
    yield* client.get("subscribed", { type: "subscribe", sessionId: id, afterSeq: 0 })
    yield* completeTurn(client, id, "hello there")
    const listed = yield* call(["sessions", "list"], own)
    assert.deepStrictEqual(
      linesOf(listed.stdout).map(session => session.id),
      [id]
    )
    const other = yield* createSession(client)
    const idsOf = (...options: ReadonlyArray<string>) =>
      Effect.map(call(["sessions", "list", ...options], own), ({ stdout }) =>
        linesOf(stdout).map(session => session.id)
      )
    assert.deepStrictEqual(yield* idsOf(), [other, id])
    yield* completeTurn(client, id, "hello again")
    assert.deepStrictEqual(yield* idsOf("--order", "activity"), [id, other])
    yield* client.get("accepted", { type: "send_message", sessionId: id, content: "/ask" })
    yield* client.untilEvent(id, event => event.type === "question_requested")
    assert.deepStrictEqual(yield* idsOf("--waiting"), [id])
    assert.deepStrictEqual(yield* idsOf("--failed"), [])
    assert.match((yield* call(["sessions", "list"], own, true)).stdout, /active +waiting +echo/)
    const refused = yield* call(["sessions", "list", "--order", "created", "--waiting"], own)
    assert.include(refused.stderr, 'waiting: needs the order "activity"')
    const shown = yield* call(["sessions", "show", id], own, true)
    assert.match(shown.stdout, /agent +echo\n/)
    const events = linesOf((yield* call(["sessions", "tail", id, "--once"], own)).stdout)
    assert.strictEqual(events.at(-1)?.type, "synced")
    assert.isAbove(events.length, 5)
    const read = yield* call(["sessions", "tail", id, "--once"], own, true)
    assert.include(read.stdout, "echo: hello there")
    const absent = yield* call(["sessions", "show", "absent"], own)
    assert.strictEqual(absent.code, 3, absent.stderr)
    assert.include(absent.stderr, "\ncauseway sessions list lists the sessions.\n")
  })

  for (const over of [[], ["--http"]]) {
    const name = over[0] ?? "a WebSocket"
    const sessions = (args: ReadonlyArray<string>, isTerminal = false) =>
      call(["sessions", ...args, ...over], {}, isTerminal)

    test.scoped(`sends messages and prints answers over ${name}`, function* () {
      const id = yield* newSession
      const [first] = linesOf((yield* sessions(["send", id, "hello"])).stdout)
      assert.match(String(first?.clientMessageId), /^[0-9a-f-]{36}$/)
      const shown = yield* sessions(["send", id, "and now?", "--wait"], true)
      assert.strictEqual(shown.code, 0, shown.stderr)
      assert.include(shown.stdout, "echo: and now?\n")
      assert.notInclude(shown.stdout, "echo: hello")
      assert.notInclude(shown.stdout, "> and now?")

      const once = ["send", id, "once", "--id", "m-1"]
      const sent = yield* sessions([...once, "--wait"])
      const [record, ...updates] = linesOf(sent.stdout)
      assert.strictEqual(record?.clientMessageId, "m-1")
      assert.strictEqual(textOf(updates), "echo: once")
      const events = updates.map(update => update.event as { readonly type: string; readonly turnId?: string })
      assert.strictEqual(events.at(-1)?.type, "turn_completed")
      assert.deepStrictEqual(new Set(events.map(({ turnId }) => turnId)), new Set([record?.turnId as string]))
      // The turn is in the history already.
      assert.strictEqual((yield* sessions([...once, "--wait"])).stdout, sent.stdout)
      assert.strictEqual((yield* sessions(once, true)).stdout, `${record?.turnId}\n`)
      const other = yield* sessions(["send", id, "other", "--id", "m-1"])
      assert.deepStrictEqual([other.code, other.stdout], [1, ""])

      const all = linesOf((yield* sessions(["tail", id, "--once"])).stdout)
      assert.strictEqual(textOf(all), "echo: helloecho: and now?echo: once")
      assert.include((yield* sessions(["show", id], true)).stdout, id)
      assert.include((yield* sessions(["list"])).stdout, id)
      const absent = yield* sessions(["send", "absent", "hello"])
      assert.strictEqual(absent.code, 3, absent.stderr)
    })

    test.scoped(`fails with the turn of a message over ${name}`, function* () {
      const id = yield* newSession
      const failed = yield* sessions(["send", id, "/fail too much", "--wait"], true)
      assert.strictEqual(failed.code, 1)
      assert.match(failed.stderr, /^The turn failed: too much/m)
      const waiting = yield* Effect.fork(sessions(["send", id, "/hang", "--wait"]))
      const { env, url } = yield* Setting
      const client = yield* connect(`${url.replace("http", "ws")}/ws`, {
        headers: { authorization: `Bearer ${env.CAUSEWAY_SESSION_TOKEN}` }
      })
      yield* client.get("subscribed", { type: "subscribe", sessionId: id, afterSeq: 0 })
      yield* client.untilEvent(
        id,
        ({ type, ...event }) => type === "turn_started" && "content" in event && event.content === "/hang"
      )
      yield* client.get("accepted", { type: "interrupt_turn", sessionId: id })
      const interrupted = yield* Fiber.join(waiting)
      assert.deepStrictEqual([interrupted.code, interrupted.stderr], [1, "The turn was interrupted\n"])
    })
  }

  test.scoped("sends what comes from standard input", function* () {
    const id = yield* newSession
    const sent = yield* run(["sessions", "send", id, "-", "--wait"], { input: "two\nlines\n" })
    assert.strictEqual(sent.code, 0, sent.stderr)
    assert.strictEqual(textOf(linesOf(sent.stdout)), "echo: two\nlines")
  })
})
