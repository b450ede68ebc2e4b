/** The bundled client on a web page of another origin, across a restart of the service. */
import { fileURLToPath } from "node:url"
import { assert, layer } from "@effect/vitest"
import { Effect } from "effect"
import { build } from "esbuild"
import * as Simulator from "../../src/Simulator/Simulator.ts"
import * as Browser from "../Gateway/browser/Browser.ts"
import { secret, token } from "../Gateway/survival/Token.ts"
import { freePort } from "../postgres/Server.ts"
import * as Environment from "../service/Environment.ts"
import * as Service from "../service/Service.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"

const bundle = Effect.promise(() =>
  build({
    entryPoints: [fileURLToPath(new URL("./browser/Page.ts", import.meta.url))],
    bundle: true,
    minify: true,
    format: "iife",
    platform: "browser",
    target: "es2022",
    write: false
  })
).pipe(Effect.map(({ outputFiles }) => outputFiles[0]!.text))

/** A service that pages of one origin may use, such a page, and one of another origin. */
const setting = Effect.gen(function* () {
  const simulator = yield* Simulator.make({ seed: "browser" })
  const html = `<!doctype html><title>A client</title><script>${yield* bundle}</script>`
  const origin = yield* Browser.serve(html)
  const stranger = yield* Browser.serve(html)
  const directory = yield* temporaryDirectory
  const start = Service.start({
    directory,
    env: {
      PORT: String(yield* Effect.promise(freePort)),
      AGENT_PLATFORM_URL: simulator.platformUrl,
      GATEWAY_JWT_SECRET: secret,
      GATEWAY_ALLOWED_ORIGINS: origin,
      HTTP_ALLOWED_ORIGINS: origin
    }
  })
  const browser = yield* Browser.launch
  return { origin, stranger, start, browser, bearer: yield* token("acme", "alice") }
})

interface Look {
  readonly changes: Readonly<Record<string, ReadonlyArray<number>>>
  readonly ways: ReadonlyArray<string>
  readonly events: ReadonlyArray<number>
  readonly updates: ReadonlyArray<string>
  readonly text: string
  readonly failures: ReadonlyArray<string>
}

const { absence } = Browser

layer(Environment.layer, { excludeTestServices: true })(
  `the client in a browser${absence === undefined ? "" : ` (${absence})`}`,
  it => {
    const test = it.scoped.skipIf(absence !== undefined)

    test("reads, writes, follows and converses, also across a restart of the service", () =>
      Effect.gen(function* () {
        const { bearer, browser, origin, start, stranger } = yield* setting
        const first = yield* start
        const { url } = first
        const page = yield* Browser.visit(browser, origin)
        assert.deepStrictEqual(yield* Browser.call(page, "entries", url, Service.key), {
          version: 1,
          isSame: true,
          isAbsent: true,
          stale: ["PreconditionFailed", 1],
          keys: ["a/ü", "b", "c"],
          refused: ["Unauthorized", "string"]
        })

        // A page of an origin that is not allowed can do nothing.
        const foreign = yield* Browser.visit(browser, stranger)
        const refused = ["ConnectionFailed", "ConnectionFailed"]
        assert.deepStrictEqual(yield* Browser.call(foreign, "knock", url, Service.key, bearer), refused)

        const look = Effect.map(Browser.call(page, "look"), seen => seen as Look)
        const until = (matches: (seen: Look) => boolean): Effect.Effect<Look> =>
          Effect.flatMap(look, seen => {
            assert.deepStrictEqual(seen.failures, [])
            return matches(seen) ? Effect.succeed(seen) : Effect.delay(until(matches), "20 millis")
          })
        yield* Browser.call(page, "begin", url, Service.key, bearer)
        yield* until(({ ways }) => ways.length === 2)
        yield* Browser.call(page, "say", "Grüße, 世界 😀")
        yield* Browser.call(page, "write", url, Service.key, "before")
        yield* until(
          ({ changes, text }) =>
            text === "echo: Grüße, 世界 😀" && Object.values(changes).every(seqs => seqs.length === 4)
        )

        yield* first.end("SIGTERM")
        yield* until(
          ({ ways }) => ways.includes("webSocket disconnected") && ways.includes("serverSentEvents disconnected")
        )
        yield* start
        yield* Browser.call(page, "say", "again")
        yield* Browser.call(page, "write", url, Service.key, "after")
        const seen = yield* until(
          ({ changes, text }) => text.endsWith("again") && Object.values(changes).every(seqs => seqs.length === 5)
        )
        assert.strictEqual(seen.text, "echo: Grüße, 世界 😀echo: again")
        assert.deepStrictEqual(seen.changes.webSocket, seen.changes.serverSentEvents)
        assert.deepStrictEqual(
          seen.events,
          seen.events.map((_, index) => index + 1)
        )
        assert.deepStrictEqual(
          seen.updates.filter(type => type !== "event"),
          ["synced"]
        )
        const connections = seen.ways.filter(way => way.endsWith(" connected"))
        assert.includeMembers(connections, ["webSocket connected", "serverSentEvents connected"])
      }))
  }
)
