import { stripVTControlCharacters } from "node:util"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import * as Simulator from "../../../src/Simulator/Simulator.ts"
import { secret, token } from "../../Gateway/survival/Token.ts"
import { freePort } from "../../postgres/Server.ts"
import { onlyLong } from "../../Scale.ts"
import * as Environment from "../../service/Environment.ts"
import { serve } from "../../service/InProcess.ts"
import * as Service from "../../service/Service.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"
import { testsOf } from "../../Tests.ts"
import * as InProcess from "../InProcess.ts"
import * as Program from "../Program.ts"

/** What is to be read on a terminal. */
const seen = (stdout: string): string => stripVTControlCharacters(stdout).replaceAll("\r\n", "\n")

const count = (text: string, part: string): number => text.split(part).length - 1

/** A gateway in production mode within this process, and the environment of its client. */
const served = Effect.gen(function* () {
  const simulator = yield* Simulator.make({ seed: "chat", pace: "2 millis" })
  const { url } = yield* serve({
    KV_API_KEY: Service.key,
    AGENT_PLATFORM_URL: simulator.platformUrl,
    GATEWAY_JWT_SECRET: secret
  })
  return { env: { CAUSEWAY_URL: url, CAUSEWAY_SESSION_TOKEN: yield* token("acme") } }
})

/** A gateway in production mode that can be started again at its port, and what a client needs to know of it. */
const setting = Effect.gen(function* () {
  const simulator = yield* Simulator.make({ seed: "chat", pace: "2 millis" })
  const directory = yield* temporaryDirectory
  const port = String(yield* Effect.promise(freePort))
  const start = Service.start({
    directory,
    env: { AGENT_PLATFORM_URL: simulator.platformUrl, GATEWAY_JWT_SECRET: secret, PORT: port }
  })
  const service = yield* start
  const env = { CAUSEWAY_URL: service.url, CAUSEWAY_SESSION_TOKEN: yield* token("acme") }
  return { start, service, env }
})

layer(Environment.layer, { excludeTestServices: true })("causeway chat", it => {
  const test = testsOf(it)
  test.scoped("talks with an agent line by line, and continues a session", function* () {
    const { env } = yield* served
    const lines = ["hello there", "/ask", "2", "/approve", "no", ":read notes/last-message.md", ":stop", "again"]
    const onTerminal = { env, isTerminal: true }
    const held = yield* Program.run({ ...onTerminal, args: ["chat"], piped: lines.join("\n") })
    const stdout = seen(held.stdout)
    assert.strictEqual(held.code, 0, stdout)
    const shown = [
      "· session active",
      "What was said can be echoed.",
      '→ write_file {"path":"notes/last-message.md"}',
      "+ notes/last-message.md (iteration 1, 25 bytes)",
      "echo: hello there",
      "? Which color?\n  1. red\n  2. blue",
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
    const later = yield* Program.run({ ...onTerminal, args: ["chat", "--session", session], piped: "and now?" })
    assert.strictEqual(later.code, 0)
    assert.include(seen(later.stdout), "echo: hello there\n")
    assert.include(seen(later.stdout), "echo: and now?\n")
  })

  onlyLong(test.scoped)("continues after the gateway was killed and restarted, and prints nothing twice", function* () {
    const { env, service, start } = yield* setting
    const piped = "/long 100000\nhello\n"
    const chat = yield* Program.start({ env, args: ["chat"], isTerminal: true, piped })
    yield* chat.shows(" 100 ")
    yield* service.end("SIGKILL")
    yield* chat.shows("connecting again")
    yield* start
    const ended = yield* chat.ended
    const stdout = seen(ended.stdout)
    for (const text of [" 100 ", "connecting again", "connected again", "(gateway_restarted)"]) {
      assert.strictEqual(count(stdout, text), 1, stdout)
    }
    assert.include(stdout, "echo: hello\n")
    assert.strictEqual(ended.code, 1)
  })

  onlyLong(test.scoped)("has a prompt for people, and prints at the end how to continue", function* () {
    const { env } = yield* served
    const chat = yield* Program.start({ env, args: ["chat"], isTerminal: true })
    yield* chat.shows("> ")
    yield* chat.type("hello\r")
    yield* chat.shows("echo: hello")
    yield* chat.type(":quit\r")
    const { code, stdout } = yield* chat.ended
    assert.strictEqual(code, 0)
    assert.match(seen(stdout), /\nContinue with --session \S+\n$/)
  })

  test.scoped("ends with a code for its outcome", function* () {
    const { env } = yield* served
    const refused = yield* InProcess.call(["chat"], { ...env, CAUSEWAY_SESSION_TOKEN: "" })
    assert.strictEqual(refused.code, 5)
    assert.match(refused.stderr, /^The service refuses the credential: .*token.*\nThere is no credential/)
    assert.notInclude(refused.stderr, "    at ")
    const waiting = yield* Program.start({ env, args: ["chat"] })
    yield* waiting.shows('"synced"')
    yield* waiting.signal("SIGINT")
    assert.strictEqual((yield* waiting.ended).code, 130)
  })
})
