/** A browser with a page of the service, for the tests of a suite. */
import { randomUUID } from "node:crypto"
import { readFileSync } from "node:fs"
import { createRequire } from "node:module"
import { setTimeout } from "node:timers/promises"
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import { Effect, Exit, Scope } from "effect"
import type { BrowserContext, Locator, Page, Route } from "playwright-core"
import { afterAll, afterEach, assert, beforeAll, describe, vi } from "vitest"
import { type Client, makeClient } from "../../src/exports/client.ts"
import { absence, hangMs, launch } from "../Gateway/browser/Browser.ts"
import { buildPages, start } from "./Service.ts"

/** Waits until an assertion holds, because a page updates asynchronously. */
export const eventually = (holds: () => Promise<void>): Promise<void> =>
  vi.waitFor(holds, { timeout: hangMs, interval: 20 })

/** Retries while the store is unavailable, as may happen with a slow disk. A write is applied once. */
const patientFetch: typeof fetch = async (input, init) => {
  const headers = { "idempotency-key": randomUUID(), ...(init?.headers as Record<string, string>) }
  for (;;) {
    const response = await fetch(input, { ...init, headers })
    if (response.status !== 503) return response
    await response.body?.cancel()
    await setTimeout(200)
  }
}

/** Whether an element or one of its descendants has the focus. */
export const hasFocus = (element: Locator): Promise<boolean> =>
  element.evaluate(found => found.matches(":focus-within"))

/** Waits until the element has the focus. */
export const getsFocus = (element: Locator): Promise<void> =>
  eventually(async () => assert.isTrue(await hasFocus(element)))

/** Messages of the browser about errors that a test provokes, or about a stopped service. */
const isProvoked = (text: string): boolean =>
  /Failed to load resource|WebSocket connection to .* failed|ERR_CONNECTION/.test(text)

/** Collects errors and warnings of a page, and its requests to anything but the service. */
const collectComplaints = (page: Page, base: () => string, complaints: Array<string>): void => {
  page.on("pageerror", error => complaints.push(error.message))
  page.on("console", message => {
    if (["error", "warning"].includes(message.type()) && !isProvoked(message.text())) complaints.push(message.text())
  })
  page.on("request", request => {
    if (!request.url().startsWith(base()) && !/^(?:blob|data):/.test(request.url())) complaints.push(request.url())
  })
}

const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8")

interface AxeResults {
  readonly violations: ReadonlyArray<{
    readonly id: string
    readonly impact: string
    readonly help: string
    readonly nodes: ReadonlyArray<{ readonly html: string }>
  }>
}

/** The serious and critical findings of axe, for all rules or the named ones. */
export const violations = async (page: Page, rules?: ReadonlyArray<string>): Promise<ReadonlyArray<string>> => {
  // The policy of the page blocks injected scripts, but not those of the debugger.
  if (!(await page.evaluate<boolean>("'axe' in globalThis"))) await page.evaluate(axeSource)
  return page.evaluate(
    async options => {
      const { axe } = globalThis as unknown as { axe: { run: (options: object) => Promise<AxeResults> } }
      const { violations } = await axe.run(options)
      return violations
        .filter(({ impact }) => impact === "serious" || impact === "critical")
        .flatMap(({ help, id, nodes }) => nodes.map(({ html }) => `${id}: ${help}: ${html}`))
    },
    rules === undefined ? {} : { runOnly: [...rules] }
  )
}

/**
 * One browser with one page for all tests of a suite. After each test, the page must have no errors. The report of a
 * failed test includes the content of the page. It must be created within `describe`, because it registers hooks.
 */
export class Visit {
  /** Set by the hooks of the suite. */
  page!: Page
  /** The address of the service, without a slash at its end. Requests to other addresses are errors. */
  base = ""
  #browser!: BrowserContext
  readonly #scope = Effect.runSync(Scope.make())
  readonly #complaints: Array<string> = []

  constructor() {
    beforeAll(async () => {
      await buildPages()
      this.#browser = await this.run(Effect.provide(launch, NodeFileSystem.layer))
      this.page = await this.newPage()
    })
    afterAll(() => Effect.runPromise(Scope.close(this.#scope, Exit.void)))
    afterEach(async ({ task }) => {
      // The content of the page helps to explain a failure.
      if (task.result?.state === "fail") {
        const text = await this.page.locator("body").ariaSnapshot()
        const shown = text.length > 4000 ? `${text.slice(0, 2000)}\n[…]\n${text.slice(-2000)}` : text
        const focused = await this.page.evaluate("document.activeElement?.outerHTML.slice(0, 200)")
        throw new Error(`The page was at ${this.page.url()}, had the focus in ${focused} and showed:\n${shown}`)
      }
      assert.deepStrictEqual(this.#complaints.splice(0), [])
    })
  }

  readonly newPage = async (): Promise<Page> => {
    const page = await this.#browser.newPage()
    collectComplaints(page, () => this.base, this.#complaints)
    return page
  }

  /** Runs an effect whose resources are released after the last test. */
  readonly run = <A, E>(effect: Effect.Effect<A, E, Scope.Scope>): Promise<A> =>
    Effect.runPromise(Effect.orDie(Scope.extend(effect, this.#scope)))

  /** Starts the service of the page in dev mode. */
  readonly serve = async (env: Readonly<Record<string, string>> = {}) => {
    const server = await this.run(start(env))
    this.base = server.base
    return server
  }

  /** Another client, which writes and reads independently of the page. */
  readonly client = (): Client =>
    makeClient({ baseUrl: this.base, token: "dev-key", fetch: patientFetch, timeoutMs: hangMs })

  /** Signs in to the console, at a view or another address. */
  readonly signIn = async (
    credential = "dev-key",
    address = `${this.base}/console`,
    page = this.page
  ): Promise<void> => {
    await page.goto(address)
    await page.getByLabel("Key or token").fill(credential)
    await page.getByRole("button", { name: "Sign in" }).click()
  }

  /** Starts the service, and signs in with the key that reads and writes. */
  readonly enter = async (env: Readonly<Record<string, string>> = {}): Promise<void> => {
    await this.serve(env)
    await this.signIn()
    await this.page.getByText("reads and writes").waitFor()
  }

  readonly signOut = (): Promise<void> => this.page.getByRole("button", { name: "Sign out" }).click()

  /** Opens a view as a link does. */
  readonly open = (...segments: ReadonlyArray<string>): Promise<unknown> =>
    this.page.evaluate(`location.hash = "#/${segments.map(encodeURIComponent).join("/")}"`)

  /** The value of the entry that is open. */
  readonly editor = (): Locator =>
    this.page.getByRole("region", { name: "Entry" }).getByRole("textbox", { name: "Value" })

  /** Waits until the editor contains a text. */
  readonly shows = (text: string | RegExp): Promise<void> =>
    eventually(async () => {
      const shown = await this.editor().inputValue()
      if (typeof text === "string") assert.strictEqual(shown, text)
      else assert.match(shown, text)
    })

  /** Imports lines in the open dialog. */
  readonly importLines = async (existing: string, ...lines: ReadonlyArray<string>): Promise<void> => {
    const dialog = this.page.getByRole("dialog")
    const file = { name: "a.ndjson", mimeType: "", buffer: Buffer.from(lines.join("\n")) }
    await dialog.getByLabel("File to import").setInputFiles(file)
    await dialog.getByLabel("If an entry already exists").selectOption({ label: existing })
    await dialog.getByRole("button", { name: "Import", exact: true }).click()
  }

  /** Sends a message to the agent of the open session. */
  readonly say = async (text: string): Promise<void> => {
    await this.page.getByLabel("Message").fill(text)
    await this.send()
  }

  /**
   * Acts on a session, and waits for the effect. The action is repeated only if it was refused because the store is
   * unavailable, which happens on slow machines. The page removes the message of the last refusal at once.
   */
  readonly attempt = async (act: () => Promise<void>, effect: Locator): Promise<void> => {
    const unavailable = this.page.getByRole("alert").getByText("Store unavailable", { exact: true })
    for (;;) {
      await act()
      await effect.or(unavailable).first().waitFor()
      if ((await unavailable.count()) === 0) return
      await setTimeout(200)
    }
  }

  /** Creates a session in the view of sessions. */
  readonly create = (): Promise<void> =>
    this.attempt(
      () => this.page.getByRole("button", { name: "Create", exact: true }).click(),
      this.page.getByText("No messages yet.")
    )

  /**
   * Sends the message in the focused field. It is sent again only if it was refused because the store is unavailable,
   * which happens on slow machines.
   */
  readonly send = async (): Promise<void> => {
    const unavailable = this.page.getByRole("alert").getByText("Store unavailable", { exact: true })
    for (;;) {
      // A message can be sent after the previous one was accepted.
      await this.page.getByRole("button", { name: "Send", exact: true, disabled: false }).waitFor()
      await this.page.keyboard.press("Enter")
      await this.page.getByRole("button", { name: "Sending…" }).waitFor({ state: "detached" })
      if ((await unavailable.count()) === 0) return
      await setTimeout(200)
    }
  }

  /** Delays the requests of the page to some addresses, or their answers, until `release`. */
  readonly hold = async (pattern: RegExp, method: string, of: "request" | "answer") => {
    const { page } = this
    const held = Promise.withResolvers<void>()
    const handled: Array<Promise<void>> = []
    const reached = Promise.withResolvers<void>()
    const handler = async (route: Route) => {
      if (route.request().method() !== method) return route.fallback()
      const response = of === "answer" ? await route.fetch({ timeout: hangMs }) : undefined
      const sent = held.promise.then(() => (response === undefined ? route.continue() : route.fulfill({ response })))
      handled.push(sent)
      reached.resolve()
      return sent
    }
    await page.route(pattern, handler)
    const release = async () => {
      held.resolve()
      // A route that is taken away is handled by that.
      await Promise.all(handled)
      await page.unroute(pattern, handler)
    }
    return { reached: reached.promise, release }
  }

  readonly nextFrame = (): Promise<unknown> => this.page.evaluate("new Promise(requestAnimationFrame)")

  /** Checks accessibility in light and dark, and that the view is no wider than a narrow window. */
  readonly isFit = async (): Promise<void> => {
    const { page } = this
    try {
      assert.deepStrictEqual(await violations(page), [])
      // The dark theme changes only colors. A narrow window changes nothing that axe checks.
      await page.emulateMedia({ colorScheme: "dark" })
      assert.deepStrictEqual(await violations(page, ["color-contrast"]), [], "dark")
      await page.setViewportSize({ width: 360, height: 740 })
      await this.isNoWiderThan(360)
    } finally {
      await page.emulateMedia({ colorScheme: "light" })
      await page.setViewportSize({ width: 1280, height: 720 })
    }
  }

  readonly isNoWiderThan = (width: number): Promise<void> =>
    eventually(async () => {
      assert.isAtMost(await this.page.evaluate<number>("document.documentElement.scrollWidth"), width)
    })
}

/** A suite with a page in a browser. It is skipped where there is no browser. */
export const describeVisit = (name: string, define: (visit: Visit) => void): void =>
  void describe.skipIf(absence !== undefined)(name, () => define(new Visit()))
