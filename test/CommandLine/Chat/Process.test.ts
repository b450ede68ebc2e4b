import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import * as Simulator from "../../../src/Simulator/Simulator.ts"
import { secret, token } from "../../Gateway/survival/Token.ts"
import * as Environment from "../../service/Environment.ts"
import * as Service from "../../service/Service.ts"
import * as Program from "../Program.ts"

const count = (text: string, part: string): number => text.split(part).length - 1

/** A gateway in production mode that can be started again at its port, and what a client needs to know of it. */
const setting = Effect.gen(function* () {
  const simulator = yield* Simulator.make({ seed: "chat", pace: "2 millis" })
  const directory = yield* Environment.temporaryDirectory
  const start = (port = "0") =>
    Service.start({
      directory,
      env: { AGENT_PLATFORM_URL: simulator.platformUrl, GATEWAY_JWT_SECRET: secret, PORT: port }
    })
  const service = yield* start()
  const env = { CAUSEWAY_URL: service.url, CAUSEWAY_SESSION_TOKEN: yield* token("acme") }
  return { start, service, env, port: new URL(service.url).port }
})

layer(Environment.layer, { excludeTestServices: true })("causeway chat", it => {
  it.scoped("talks with an agent line by line, and goes on with a session", () =>
    Effect.gen(function* () {
      const { env } = yield* setting
      const lines = ["hello there", "/ask", "2", "/approve", "no", ":read notes/last-message.md", ":stop", "again"]
      const { code, stderr, stdout } = yield* Program.run({ env, args: ["chat"], input: lines.join("\n") })
      assert.strictEqual(stderr, "")
      assert.strictEqual(code, 0)
      const shown = [
        "· session active",
        "What was said can be echoed.",
        '→ write_file {"path":"notes/last-message.md"}',
        "+ notes/last-message.md (iteration 1, 25 bytes)",
        "echo: hello there",
        "? Which colour?\n  1. red\n  2. blue",
        "answer: blue",
        "· denied",
        "# Message 1\n\nhello there",
        "· session deactivating (the session was stopped)",
        "echo: again"
      ].map(text => stdout.indexOf(`${text}\n`))
      assert.deepStrictEqual(
        shown,
        [...shown].sort((a, b) => a - b),
        stdout
      )
      assert.isAbove(shown[0]!, 0)

      const session = /session (\S+);/.exec(stdout)?.[1] ?? ""
      const later = yield* Program.run({ env, args: ["chat", "--session", session], input: "and now?" })
      assert.strictEqual(later.code, 0)
      assert.include(later.stdout, "echo: hello there\n")
      assert.include(later.stdout, "echo: and now?\n")
    })
  )

  it.scoped("goes on when the gateway was killed and is back, and prints nothing twice", () =>
    Effect.gen(function* () {
      const { env, port, service, start } = yield* setting
      const chat = yield* Program.start({ env, args: ["chat"], input: "/long 100000\nhello\n" })
      yield* chat.shows(" 100 ")
      yield* service.end("SIGKILL")
      yield* chat.shows("connecting again")
      yield* start(port)
      const { code, stdout } = yield* chat.ended
      for (const text of [" 100 ", "connecting again", "connected again", "(gateway_restarted)"]) {
        assert.strictEqual(count(stdout, text), 1, stdout)
      }
      assert.include(stdout, "echo: hello\n")
      assert.strictEqual(code, 1)
    })
  )

  it.scoped("prints events as lines of JSON where it is asked to, and all else on standard error", () =>
    Effect.gen(function* () {
      const { env } = yield* setting
      const { code, stderr, stdout } = yield* Program.run({ env, args: ["chat", "--json"], input: "hello\n:files\n" })
      assert.strictEqual(code, 0, stderr)
      const updates = stdout
        .split("\n")
        .slice(0, -1)
        .map(line => JSON.parse(line))
      assert.strictEqual(updates[0].type, "synced")
      const types = updates.flatMap(({ event }) => (event === undefined ? [] : [event.type]))
      assert.includeMembers(types, ["turn_started", "text_delta", "turn_completed"])
      assert.match(stderr, /· session /)
    })
  )

  it.scoped("ends with a code that tells how it went", () =>
    Effect.gen(function* () {
      const { env } = yield* setting
      const wrong = yield* Program.run({ env, args: ["chat", "--url", "nowhere"] })
      assert.strictEqual(wrong.code, 2)
      assert.include(wrong.stderr, '--url: "nowhere" is not an address')
      const refused = yield* Program.run({ args: ["chat"], env: { ...env, CAUSEWAY_SESSION_TOKEN: "" } })
      assert.strictEqual(refused.code, 5)
      assert.match(refused.stderr, /^The service refuses the credential: .*token.*\nThere is no credential/)
      assert.notInclude(refused.stderr, "    at ")
      const waiting = yield* Program.start({ env, args: ["chat"] })
      yield* waiting.shows(":help lists the commands")
      yield* waiting.signal("SIGINT")
      assert.strictEqual((yield* waiting.ended).code, 130)
    })
  )
})
