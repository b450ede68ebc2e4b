/** A browser that visits the service, for the tests of a suite. */
import { randomUUID } from "node:crypto"
import { setTimeout } from "node:timers/promises"
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import { Effect, Exit, Scope } from "effect"
import type { BrowserContext, Locator, Page } from "playwright-core"
import { afterAll, afterEach, assert, beforeAll, vi } from "vitest"
import { type Client, makeClient } from "../../src/client.ts"
import { hangMs, launch } from "../Gateway/browser/Browser.ts"
import { collectComplaints, violations } from "./Complaints.ts"
import { buildPages, start } from "./Service.ts"

/** Waits until an assertion holds: a page follows what is done to it as soon as the machine lets it. */
export const eventually = (holds: () => Promise<void>): Promise<void> =>
  vi.waitFor(holds, { timeout: hangMs, interval: 20 })

/** Asks again while the store is unavailable, as it is for moments where a disk is slow. A write is done once. */
const patientFetch: typeof fetch = async (input, init) => {
  const headers = { "idempotency-key": randomUUID(), ...(init?.headers as Record<string, string>) }
  for (;;) {
    const response = await fetch(input, { ...init, headers })
    if (response.status !== 503) return response
    await response.body?.cancel()
    await setTimeout(200)
  }
}

/** Whether something has the focus, or has what has it within. */
export const hasFocus = (element: Locator): Promise<boolean> =>
  element.evaluate(found => found.matches(":focus-within"))

/** Waits until it has. */
export const getsFocus = (element: Locator): Promise<void> =>
  eventually(async () => assert.isTrue(await hasFocus(element)))

/**
 * One browser with one page, from the first test of a suite to its last. After each test there is nothing to complain of;
 * of one that fails the report has what the page showed.
 * It is made where the suite is described, as it registers hooks.
 */
export class Visit {
  /** From the hooks of the suite on. */
  page!: Page
  /** The address of the service, without a slash at its end. What does not begin with it must not be requested. */
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
      // What the page shows then tells more of a failure than what it lacks.
      if (task.result?.state === "fail") {
        const text = await this.page.locator("body").ariaSnapshot()
        const shown = text.length > 4000 ? `${text.slice(0, 2000)}\n[…]\n${text.slice(-2000)}` : text
        throw new Error(`The page was at ${this.page.url()} and showed:\n${shown}`)
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

  /** Starts the service in dev mode, as the one that is visited. */
  readonly serve = async (env: Readonly<Record<string, string>> = {}) => {
    const server = await this.run(start(env))
    this.base = server.base
    return server
  }

  /** Writes and reads beside the page. */
  readonly client = (): Client =>
    makeClient({ baseUrl: this.base, token: "dev-key", fetch: patientFetch, timeoutMs: hangMs })

  /** Gives a credential to the console, at a view or another address. */
  readonly signIn = async (
    credential = "dev-key",
    address = `${this.base}/console`,
    page = this.page
  ): Promise<void> => {
    await page.goto(address)
    await page.getByLabel("Key or token").fill(credential)
    await page.getByRole("button", { name: "Sign in" }).click()
  }

  readonly signOut = (): Promise<void> => this.page.getByRole("button", { name: "Sign out" }).click()

  /** Goes to a view as a link does. */
  readonly open = (...segments: ReadonlyArray<string>): Promise<unknown> =>
    this.page.evaluate(`location.hash = "#/${segments.map(encodeURIComponent).join("/")}"`)

  /** The value of the entry that is open. */
  readonly editor = (): Locator =>
    this.page.getByRole("region", { name: "Entry" }).getByRole("textbox", { name: "Value" })

  /** Waits until the editor holds a text. */
  readonly shows = (text: string | RegExp): Promise<void> =>
    eventually(async () => {
      const shown = await this.editor().inputValue()
      if (typeof text === "string") assert.strictEqual(shown, text)
      else assert.match(shown, text)
    })

  /** Writes to the agent of the session that is open. */
  readonly say = async (text: string): Promise<void> => {
    await this.page.getByLabel("Message").fill(text)
    await this.send()
  }

  /**
   * Sends what is written in the field that has the focus. It is sent again where it was refused because a commit takes
   * long, as may happen where a disk or the whole machine is slow; any other refusal is left to be seen.
   */
  readonly send = async (): Promise<void> => {
    const unavailable = this.page.getByRole("alert").getByText("Store unavailable", { exact: true })
    for (;;) {
      // A message is sent once the one before has been taken.
      await this.page.getByRole("button", { name: "Send", exact: true, disabled: false }).waitFor()
      await this.page.keyboard.press("Enter")
      await this.page.getByRole("button", { name: "Sending…" }).waitFor({ state: "detached" })
      if ((await unavailable.count()) === 0) return
      await setTimeout(200)
    }
  }

  readonly nextFrame = (): Promise<unknown> => this.page.evaluate("new Promise(requestAnimationFrame)")

  /** The view is fit for all eyes: light and dark, and no wider than the window. */
  readonly isFit = async (): Promise<void> => {
    const { page } = this
    try {
      assert.deepStrictEqual(await violations(page), [])
      // What differs in the dark is colors; what differs in a narrow window is no concern of axe.
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
