/** Commands of the service as a whole, and of its sessions, against a whole service. */
import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import * as Simulator from "../../src/Simulator/Simulator.ts"
import { completeTurn, connect, createSession } from "../Gateway/Socket/Fixture.ts"
import { secret, token } from "../Gateway/survival/Token.ts"
import { keys } from "../Harness.ts"
import { serve } from "../service/InProcess.ts"
import { testsOf } from "../Tests.ts"
import { call, linesOf, of, Setting } from "./Setting.ts"

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
    const { env, url } = yield* Setting
    const headers = { authorization: `Bearer ${env.CAUSEWAY_SESSION_TOKEN}` }
    const client = yield* connect(`${url.replace("http", "ws")}/ws`, { headers })
    const id = yield* createSession(client)
    yield* client.get("subscribed", { type: "subscribe", sessionId: id, afterSeq: 0 })
    yield* completeTurn(client, id, "hello there")
    const listed = yield* call(["sessions", "list"])
    assert.deepStrictEqual(
      linesOf(listed.stdout).map(session => session.id),
      [id]
    )
    const other = yield* createSession(client)
    const idsOf = (...options: ReadonlyArray<string>) =>
      Effect.map(call(["sessions", "list", ...options]), ({ stdout }) => linesOf(stdout).map(session => session.id))
    assert.deepStrictEqual(yield* idsOf(), [other, id])
    yield* completeTurn(client, id, "hello again")
    assert.deepStrictEqual(yield* idsOf("--order", "activity"), [id, other])
    yield* client.get("accepted", { type: "send_message", sessionId: id, content: "/ask" })
    yield* client.untilEvent(id, event => event.type === "question_requested")
    assert.deepStrictEqual(yield* idsOf("--waiting"), [id])
    assert.deepStrictEqual(yield* idsOf("--failed"), [])
    assert.match((yield* call(["sessions", "list"], {}, true)).stdout, /active +waiting +echo/)
    const refused = yield* call(["sessions", "list", "--order", "created", "--waiting"])
    assert.include(refused.stderr, 'waiting: needs the order "activity"')
    const shown = yield* call(["sessions", "show", id], {}, true)
    assert.match(shown.stdout, /agent +echo\n/)
    const events = linesOf((yield* call(["sessions", "tail", id, "--once"])).stdout)
    assert.strictEqual(events.at(-1)?.type, "synced")
    assert.isAbove(events.length, 5)
    const read = yield* call(["sessions", "tail", id, "--once"], {}, true)
    assert.include(read.stdout, "echo: hello there")
    const absent = yield* call(["sessions", "show", "absent"])
    assert.strictEqual(absent.code, 3, absent.stderr)
    assert.include(absent.stderr, "\ncauseway sessions list lists the sessions.\n")
  })
})
