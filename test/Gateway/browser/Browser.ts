/** A real browser, and pages for it. */
import { existsSync, readFileSync } from "node:fs"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { Effect, type Scope } from "effect"
import { type BrowserContext, chromium, type Page } from "playwright-core"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"

const executablePath = "/usr/bin/chromium"

/** Why there is no browser; `undefined` if there is one. */
export const absence: string | undefined = existsSync(executablePath)
  ? undefined
  : `skipped: there is no ${executablePath} (Debian: chromium)`

/** Switches off what a browser does by itself. */
const args = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync"
]

/** Milliseconds after which what a test waits for will not come. How long a thing takes is up to the machine. */
export const hangMs = 90_000

/** A browser with a profile of its own, until the scope closes. */
export const launch = Effect.gen(function* () {
  const profile = yield* temporaryDirectory
  const browser = yield* Effect.acquireRelease(
    Effect.promise(() => chromium.launchPersistentContext(profile, { executablePath, args })),
    browser => Effect.promise(() => browser.close())
  )
  browser.setDefaultTimeout(hangMs)
  return browser
})

/** A page that speaks the protocol of the gateway by itself. */
export const gatewayPage: string = readFileSync(new URL("./page.html", import.meta.url), "utf8")

/** Serves a page and returns its origin, which differs for each call. */
export const serve = (html: string): Effect.Effect<string, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.async<{ readonly origin: string; readonly close: () => void }>(resume => {
      const server = createServer((_, response) => {
        response.writeHead(200, { "content-type": "text/html; charset=utf-8" }).end(html)
      })
      server.listen(0, "127.0.0.1", () => {
        const { port } = server.address() as AddressInfo
        const close = () => {
          server.close()
          server.closeAllConnections()
        }
        resume(Effect.succeed({ origin: `http://127.0.0.1:${port}`, close }))
      })
    }),
    ({ close }) => Effect.sync(close)
  ).pipe(Effect.map(({ origin }) => origin))

/** Opens the test's page in a tab of its own, until the scope closes. */
export const visit = (browser: BrowserContext, origin: string): Effect.Effect<Page, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.promise(() => browser.newPage()),
    page => Effect.promise(() => page.close())
  ).pipe(Effect.tap(page => Effect.promise(() => page.goto(origin))))

/** Calls one of the page's functions; its result is JSON. */
export const call = (page: Page, name: string, ...args: ReadonlyArray<unknown>): Effect.Effect<unknown> =>
  Effect.promise(() => page.evaluate(`client.${name}(...${JSON.stringify(args)})`))
