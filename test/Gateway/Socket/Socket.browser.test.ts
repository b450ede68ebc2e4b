import { assert, layer } from "@effect/vitest"
import { Effect, Schema } from "effect"
import { Event } from "../../../src/Gateway/Protocol.ts"
import * as Simulator from "../../../src/Simulator/Simulator.ts"
import * as Environment from "../../service/Environment.ts"
import * as Service from "../../service/Service.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"
import * as Browser from "../browser/Browser.ts"
import { secret, token } from "../survival/Token.ts"

const Conversation = Schema.Struct({
  protocol: Schema.String,
  tenant: Schema.String,
  sessionId: Schema.String,
  epoch: Schema.String,
  events: Schema.Array(Event)
})

const Resumed = Schema.Struct({ recovered: Schema.Boolean, events: Schema.Array(Event) })

const textOf = (events: ReadonlyArray<Event>): string =>
  events.map(event => (event.type === "text_delta" ? event.text : "")).join("")

const taken = { isOpen: true, closed: undefined }

/** A browser learns no more of a handshake that was refused. */
const refused = { isOpen: false, closed: { code: 1006, wasClean: false } }

/** A gateway in production mode, which a page of one origin may use. */
const setting = Effect.gen(function* () {
  const simulator = yield* Simulator.make({ seed: "browser" })
  const origin = yield* Browser.serve(Browser.gatewayPage)
  const { url } = yield* Service.start({
    directory: yield* temporaryDirectory,
    env: {
      AGENT_PLATFORM_URL: simulator.platformUrl,
      GATEWAY_JWT_SECRET: secret,
      GATEWAY_ALLOWED_ORIGINS: `https://app.example.com, ${origin}`
    }
  })
  return { origin, browser: yield* Browser.launch, gateway: `${url.replace("http", "ws")}/ws` }
})

const { absence } = Browser

layer(Environment.layer, { excludeTestServices: true })(
  `a browser${absence === undefined ? "" : ` (${absence})`}`,
  it => {
    const test = it.scoped.skipIf(absence !== undefined)

    test("has a turn with an agent, and resumes after a reload", () =>
      Effect.gen(function* () {
        const { browser, gateway, origin } = yield* setting
        const page = yield* Browser.visit(browser, origin)
        const bearer = yield* token("acme", "alice")
        const content = "Grüße, 世界 😀"
        const held = yield* Effect.flatMap(
          Browser.call(page, "converse", gateway, bearer, content),
          Schema.decodeUnknown(Conversation)
        )
        assert.deepStrictEqual([held.protocol, held.tenant], ["causeway.v1", "acme"])
        assert.strictEqual(textOf(held.events), `echo: ${content}`)
        assert.strictEqual(held.events.at(-1)?.type, "turn_completed")
        assert.deepStrictEqual(
          held.events.map(({ seq }) => seq),
          held.events.map((_, index) => index + 1)
        )

        yield* Effect.promise(() => page.reload())
        const after = 7
        const resumed = yield* Effect.flatMap(
          Browser.call(page, "resume", gateway, bearer, held.sessionId, after, held.epoch),
          Schema.decodeUnknown(Resumed)
        )
        assert.isTrue(resumed.recovered)
        assert.deepStrictEqual(resumed.events.slice(0, held.events.length - after), held.events.slice(after))
      }))

    test("is refused without a valid token, and on a page of another origin with any token", () =>
      Effect.gen(function* () {
        const { browser, gateway, origin } = yield* setting
        const bearer = yield* token("acme", "alice")
        const page = yield* Browser.visit(browser, origin)
        const foreign = yield* Browser.visit(browser, yield* Browser.serve(Browser.gatewayPage))
        assert.deepStrictEqual(yield* Browser.call(page, "knock", gateway, bearer), taken)
        assert.deepStrictEqual(yield* Browser.call(page, "knock", gateway), refused)
        assert.deepStrictEqual(yield* Browser.call(page, "knock", gateway, `${bearer}x`), refused)
        assert.deepStrictEqual(yield* Browser.call(foreign, "knock", gateway, bearer), refused)
      }))
  }
)
