/** The official clients of AG-UI and of the AI SDK on web pages: their tokens, and the pages that they may be on. */
import { fileURLToPath } from "node:url"
import { assert, layer } from "@effect/vitest"
import { Clock, Effect } from "effect"
import { build } from "esbuild"
import type { Page } from "playwright-core"
import * as Simulator from "../../src/Simulator/Simulator.ts"
import * as Environment from "../service/Environment.ts"
import * as Service from "../service/Service.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import * as Browser from "./browser/Browser.ts"
import type { Kind, Seen } from "./browser/ChatClients.ts"
import { secret, token, tokenUntil } from "./survival/Token.ts"

const kinds: ReadonlyArray<Kind> = ["agUi", "http", "webSocket"]

const bundle = Effect.promise(() =>
  build({
    entryPoints: [fileURLToPath(new URL("./browser/ChatClients.ts", import.meta.url))],
    bundle: true,
    minify: true,
    format: "iife",
    platform: "browser",
    target: "es2022",
    logLevel: "error",
    write: false
  })
).pipe(Effect.map(({ outputFiles }) => outputFiles[0]!.text))

/** A service that pages of one origin may use, such a page, and one of another origin. */
const setting = Effect.gen(function* () {
  const simulator = yield* Simulator.make({ seed: "browser" })
  const script = (yield* bundle).replaceAll("</script", "<\\/script")
  const html = `<!doctype html><title>A client</title><script>${script}</script>`
  const origin = yield* Browser.serve(html)
  const service = yield* Service.start({
    directory: yield* temporaryDirectory,
    env: {
      AGENT_PLATFORM_URL: simulator.platformUrl,
      GATEWAY_JWT_SECRET: secret,
      GATEWAY_ALLOWED_ORIGINS: origin,
      HTTP_ALLOWED_ORIGINS: origin
    }
  })
  const browser = yield* Browser.launch
  const page = yield* Browser.visit(browser, origin)
  const stranger = Effect.flatMap(Browser.serve(html), other => Browser.visit(browser, other))
  return { service, page, stranger, bearer: yield* token("acme", "alice") }
})

const look = (page: Page): Effect.Effect<ReadonlyArray<Seen>> =>
  Effect.map(Browser.call(page, "look"), seen => seen as ReadonlyArray<Seen>)

/** Waits until all clients of a page are as wanted. */
const until = (page: Page, isWanted: (seen: Seen) => boolean): Effect.Effect<ReadonlyArray<Seen>> =>
  Effect.flatMap(look(page), all =>
    all.every(isWanted) ? Effect.succeed(all) : Effect.delay(until(page, isWanted), "20 millis")
  )

const isOver = (seen: Seen): boolean => seen.isOver

/** Each client says something; what they have seen in the end, by their kinds. */
const sayTo = (page: Page, url: string, bearer: string, text: string) =>
  Effect.gen(function* () {
    const { length } = yield* look(page)
    yield* Effect.forEach(kinds, kind => Browser.call(page, "say", kind, url, bearer, text))
    return length
  })

const errorsIn = (all: ReadonlyArray<Seen>) => Object.fromEntries(all.map(({ error, kind }) => [kind, error]))

const { absence } = Browser

layer(Environment.layer, { excludeTestServices: true })(
  `the official clients in a browser${absence === undefined ? "" : ` (${absence})`}`,
  it => {
    const test = it.scoped.skipIf(absence !== undefined)

    test("are served with a token on pages of an origin that is allowed", () =>
      Effect.gen(function* () {
        const { bearer, page, service, stranger } = yield* setting
        const { url } = service
        yield* sayTo(page, url, bearer, "Grüße, 世界 😀")
        const served = yield* until(page, isOver)
        assert.deepStrictEqual(
          served.map(({ error, kind, text }) => [kind, text, error]),
          kinds.map(kind => [kind, "echo: Grüße, 世界 😀", undefined])
        )
        assert.deepStrictEqual(yield* Browser.call(page, "stop", url, bearer), [204, 404])

        yield* sayTo(page, url, `${bearer}x`, "hi")
        const refused = errorsIn((yield* until(page, isOver)).slice(kinds.length))
        for (const kind of ["agUi", "http"]) assert.match(refused[kind]!, /signature is not valid/, kind)
        // A browser learns no more of a handshake that was refused.
        assert.strictEqual(refused.webSocket, "TypeError: WebSocket chat network connection failed.")

        const foreign = yield* stranger
        yield* sayTo(foreign, url, bearer, "hi")
        assert.deepStrictEqual(errorsIn(yield* until(foreign, isOver)), {
          agUi: "TypeError: Failed to fetch",
          http: "TypeError: Failed to fetch",
          webSocket: "TypeError: WebSocket chat network connection failed."
        })
      }))

    test("distinguish a token that has expired from a connection that is lost, in the middle of an answer", () =>
      Effect.gen(function* () {
        const { bearer, page, service } = yield* setting
        const { url } = service
        // A slow machine needs a token that is valid for longer.
        const expire = (seconds: number): Effect.Effect<ReadonlyArray<Seen>> =>
          Effect.gen(function* () {
            const now = yield* Clock.currentTimeMillis
            const brief = yield* Effect.promise(() => tokenUntil(Math.floor(now / 1000) + seconds, "acme"))
            const before = yield* sayTo(page, url, brief, "/hang")
            const expired = (yield* until(page, isOver)).slice(before)
            return expired.every(({ hasStarted }) => hasStarted) ? expired : yield* expire(2 * seconds)
          })
        assert.deepStrictEqual(errorsIn(yield* expire(5)), {
          agUi: "code: token_expired",
          http: "Error: The token has expired",
          webSocket: "Error: The token has expired"
        })

        const before = yield* sayTo(page, url, bearer, "/hang")
        yield* until(page, ({ hasStarted, isOver }) => hasStarted || isOver)
        yield* service.end("SIGKILL")
        for (const { error, kind } of (yield* until(page, isOver)).slice(before)) {
          assert.match(error!, /^TypeError: .*network/, kind)
        }
      }))
  }
)
