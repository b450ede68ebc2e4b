/** Commands of the service as a whole, and of its sessions, against a process. */
import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import type { Session } from "../../src/EffectClient/Client.ts"
import * as Simulator from "../../src/Simulator/Simulator.ts"
import { secret, token } from "../Gateway/survival/Token.ts"
import * as Environment from "../service/Environment.ts"
import * as Service from "../service/Service.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { call, linesOf, of, run, Setting } from "./Setting.ts"

const setting = Layer.scoped(
  Setting,
  Effect.gen(function* () {
    const simulator = yield* Simulator.make({ seed: "cli", pace: "1 millis" })
    const { url } = yield* Service.start({
      directory: yield* temporaryDirectory,
      env: { AGENT_PLATFORM_URL: simulator.platformUrl, GATEWAY_JWT_SECRET: secret }
    })
    return yield* of(url, { CAUSEWAY_SESSION_TOKEN: yield* token("acme") })
  })
).pipe(Layer.provide(Environment.layer), Layer.orDie)

layer(setting, { excludeTestServices: true })("commands", it => {
  it.effect("prints health and the documents", () =>
    Effect.gen(function* () {
      const health = yield* run(["health", "--strict"], { env: { CAUSEWAY_TOKEN: "" } })
      assert.include(health.stdout, '"ready":true')
      assert.strictEqual(health.code, JSON.parse(health.stdout).status === "ok" ? 0 : 1)
      const shown = yield* call(["health"], {}, true)
      assert.match(shown.stdout, /store +ready\n/)
      assert.strictEqual(shown.code, 0)
      const own = yield* run(["openapi"])
      const served = yield* call(["openapi", "--from-service"])
      assert.strictEqual(JSON.parse(own.stdout).openapi, "3.0.3")
      assert.deepStrictEqual(
        Object.keys(JSON.parse(served.stdout).paths).sort(),
        Object.keys(JSON.parse(own.stdout).paths).sort()
      )
      const protocol = yield* call(["openapi", "--asyncapi", "--from-service"])
      assert.match(JSON.parse(protocol.stdout).asyncapi, /^3\./)
    })
  )

  it.effect("lists, shows and prints sessions", () =>
    Effect.gen(function* () {
      const held = yield* run(["chat"], { input: "hello there\n" })
      assert.strictEqual(held.code, 0, held.stderr)
      const [first] = linesOf(held.stdout)
      assert.strictEqual(first?.type, "synced")
      const id = (first?.session as Session | undefined)?.id ?? ""
      const listed = yield* call(["sessions", "list"])
      assert.deepStrictEqual(
        linesOf(listed.stdout).map(session => session.id),
        [id]
      )
      const shown = yield* call(["sessions", "show", id], {}, true)
      assert.match(shown.stdout, /agent +assistant\n/)
      const events = linesOf((yield* call(["sessions", "tail", id, "--once"])).stdout)
      assert.strictEqual(events.at(-1)?.type, "synced")
      assert.isAbove(events.length, 5)
      const read = yield* run(["sessions", "tail", id, "--once"], { isTerminal: true })
      assert.include(read.stdout, "echo: hello there")
      const absent = yield* call(["sessions", "show", "absent"])
      assert.strictEqual(absent.code, 3, absent.stderr)
    })
  )
})
