/** Namespaces and tenants in the console: their numbers, and more of them than are listed. */
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import { Effect, Exit, Scope } from "effect"
import type { Page, Request } from "playwright-core"
import { afterAll, afterEach, assert, beforeAll, describe, it } from "vitest"
import { makeClient } from "../../src/client.ts"
import { absence, launch } from "../Gateway/browser/Browser.ts"
import { collectComplaints, violations } from "./Complaints.ts"
import { buildPages, start } from "./Service.ts"

const many = 12_000
const nameOf = (number: number): string => `tenant:big/n-${String(number).padStart(5, "0")}`

describe.skipIf(absence !== undefined)("Namespaces and tenants in the console", () => {
  const scope = Effect.runSync(Scope.make())
  const run = <A>(effect: Effect.Effect<A, never, Scope.Scope>): Promise<A> =>
    Effect.runPromise(Scope.extend(effect, scope))

  let page: Page
  let base = ""
  const complaints: Array<string> = []

  const client = () => makeClient({ baseUrl: base, token: "dev-key" })

  /** Puts an entry into each of the namespaces. */
  const fill = async (namespaces: ReadonlyArray<string>): Promise<void> => {
    for (let from = 0; from < namespaces.length; from += 1000) {
      await client().batch(
        namespaces.slice(from, from + 1000).map(namespace => ({ op: "set", namespace, key: "k", value: 1 }))
      )
    }
  }

  beforeAll(async () => {
    await buildPages()
    base = (await run(start())).base
    await fill(["cities", "tenant:acme", "tenant:acme/settings", "tenant:acme/stock", "tenant:acme-b/settings"])
    await client().set("tenant:acme/stock", "apples", 12)
    const browser = await run(Effect.provide(Effect.orDie(launch), NodeFileSystem.layer))
    page = await browser.newPage()
    page.setDefaultTimeout(15_000)
    collectComplaints(page, base, complaints)
    await page.goto(`${base}/console/#/store`)
    await page.getByLabel("Key or token").fill("dev-key")
    await page.getByRole("button", { name: "Sign in" }).click()
  }, 180_000)

  afterAll(() => Effect.runPromise(Scope.close(scope, Exit.void)))

  afterEach(() => assert.deepStrictEqual(complaints.splice(0), []))

  const namespaces = () => page.getByRole("list", { name: "Namespaces" })
  const tenants = () => page.getByRole("list", { name: "Tenants" })
  const tab = (name: string) => page.getByRole("tab", { name })
  const foot = (text: string) => page.getByRole("status").getByText(text, { exact: true }).waitFor()
  const find = (text: string) => page.getByLabel("Find or open a namespace").fill(text)

  /** The rows of a list that are drawn. */
  const rows = async (list: ReturnType<typeof namespaces>): Promise<ReadonlyArray<string>> =>
    (await list.getByRole("listitem").allInnerTexts()).map(text => text.replaceAll("\n", " "))

  /** The look at the end of the log, which is taken every ten seconds and where the page is back online. */
  const look = () => page.evaluate("dispatchEvent(new Event('online'))")

  /** What is requested while something is done. */
  const requestsOf = async (work: () => Promise<unknown>): Promise<ReadonlyArray<string>> => {
    const asked: Array<string> = []
    const note = (request: Request) => {
      const { pathname, searchParams } = new URL(request.url())
      const of = searchParams.get("namespace") ?? searchParams.get("prefix")
      if (/\/(?:kv|tenants|changes)$/.test(pathname)) asked.push(of ? `${pathname} ${of}` : pathname)
    }
    page.on("request", note)
    await work()
    page.off("request", note)
    return asked
  }

  const isFit = async () => {
    try {
      assert.deepStrictEqual(await violations(page), [])
      await page.emulateMedia({ colorScheme: "dark" })
      assert.deepStrictEqual(await violations(page, ["color-contrast"]), [], "dark")
      await page.setViewportSize({ width: 360, height: 740 })
      assert.isAtMost(await page.evaluate<number>("document.documentElement.scrollWidth"), 360)
    } finally {
      await page.emulateMedia({ colorScheme: "light" })
      await page.setViewportSize({ width: 1280, height: 720 })
    }
  }

  it("lists tenants with the numbers of their namespaces and entries", async () => {
    await foot("5 namespaces")
    await tab("Tenants").click()
    await foot("2 tenants")
    assert.deepStrictEqual(await rows(tenants()), [
      "Without a tenant 1 namespace · 1 entry",
      "acme 3 namespaces · 4 entries",
      "acme-b 1 namespace · 1 entry"
    ])
    await isFit()
    await page.getByLabel("Find a tenant").fill("-b")
    await foot("1 of 2 tenants")
    assert.deepStrictEqual(await rows(tenants()), ["acme-b 1 namespace · 1 entry"])
    await page.getByLabel("Find a tenant").fill("none")
    await page.getByText("No tenant’s id has “none” in it.").waitFor()
  })

  it("shows the namespaces of the tenant that is chosen by the keyboard, then all of them again", async () => {
    await page.getByLabel("Find a tenant").fill("")
    await tenants().getByRole("listitem").nth(2).waitFor()
    await page.keyboard.press("Tab")
    for (const key of ["ArrowDown", "ArrowDown", "Enter"]) await page.keyboard.press(key)
    await foot("3 namespaces")
    assert.isTrue(await tab("Namespaces").evaluate(element => element.matches(":focus")))
    assert.deepStrictEqual(await rows(namespaces()), ["tenant:acme 1", "settings 1", "stock 2"])
    await isFit()
    await find("stock")
    await foot("1 of 3 namespaces")
    await find("carts")
    await page.keyboard.press("Enter")
    await page.getByRole("heading", { name: "tenant:acme/carts" }).waitFor()
    await page.getByText("This namespace has no entries.").waitFor()
    await page.getByRole("button", { name: "All namespaces" }).click()
    await namespaces().getByRole("link", { name: "cities" }).waitFor()

    await tab("Tenants").click()
    await tenants().getByRole("button", { name: "Without a tenant" }).click()
    await foot("1 namespace")
    assert.deepStrictEqual(await rows(namespaces()), ["cities 1"])
    await page.getByRole("button", { name: "All namespaces" }).click()
  })

  it("reads again what is seen when the log has moved, and nothing else", async () => {
    await namespaces().getByRole("link", { name: "tenant:acme/stock 2" }).waitFor()
    await page.evaluate("location.hash = '#/store'")
    await page.getByText("Choose a namespace.").waitFor()
    const unchanged = await requestsOf(async () => {
      const answered = page.waitForResponse(/\/changes\?/)
      await look()
      await (await answered).finished()
      await page.evaluate("new Promise(requestAnimationFrame)")
    })
    assert.deepStrictEqual(unchanged, ["/api/v1/changes"])
    await client().set("tenant:acme/stock", "pears", 3)
    const changed = await requestsOf(async () => {
      await look()
      await namespaces().getByRole("link", { name: "tenant:acme/stock 3" }).waitFor()
    })
    assert.deepStrictEqual(changed, ["/api/v1/changes", "/api/v1/kv"])
  })

  it("says how far 12,000 namespaces are listed, and finds the others by the start of their names", async () => {
    await fill(Array.from({ length: many }, (_, index) => nameOf(index)))
    await page.reload()
    await foot("The first 1,000 namespaces. Scroll, or type the start of a name to find others.")
    await isFit()
    const end = page.getByText("The first 10,000 namespaces. Type the start of a name to find others.")
    const last = namespaces().getByRole("link", { name: nameOf(9993) })
    while ((await end.count()) === 0 || (await last.count()) === 0) {
      await namespaces().evaluate(element => {
        element.scrollTop = element.scrollHeight
      })
      await page.evaluate("new Promise(requestAnimationFrame)")
    }
    assert.isBelow(await namespaces().getByRole("listitem").count(), 60)
    // Of all that is listed the page in view is read again.
    await client().set(nameOf(9993), "l", 2)
    const asked = await requestsOf(async () => {
      await look()
      await namespaces()
        .getByRole("link", { name: `${nameOf(9993)} 2` })
        .waitFor()
    })
    assert.deepStrictEqual(asked, ["/api/v1/changes", "/api/v1/kv"])

    await find(nameOf(11_999).slice(0, -1))
    await foot("10 namespaces")
    await namespaces()
      .getByRole("link", { name: nameOf(11_999) })
      .click()
    await page.getByRole("heading", { name: nameOf(11_999) }).waitFor()
    await page.getByText("1 entry").waitFor()

    await tab("Tenants").click()
    await tenants().getByRole("button", { name: "big 12,000 namespaces · 12,001 entries" }).click()
    await foot("The first 1,000 namespaces. Scroll, or type the start of a name to find others.")
    await find("n-1199")
    await foot("10 namespaces")
    assert.include(await rows(namespaces()), "n-11999 1")
  })
})
