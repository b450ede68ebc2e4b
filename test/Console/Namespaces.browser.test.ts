/** Namespaces and tenants in the console: their numbers, and more of them than are listed. */
import type { Locator, Page, Request } from "playwright-core"
import { assert, beforeAll, it } from "vitest"
import { describeVisit, eventually, getsFocus } from "./Visit.ts"

const many = 12_000
const nameOf = (number: number): string => `tenant:big/n-${String(number).padStart(5, "0")}`

describeVisit("Namespaces and tenants in the console", visit => {
  const { client, isFit, open } = visit
  let page: Page

  /** Puts an entry into each of the namespaces. */
  const fill = async (namespaces: ReadonlyArray<string>): Promise<void> => {
    for (let from = 0; from < namespaces.length; from += 1000) {
      await client().batch(
        namespaces.slice(from, from + 1000).map(namespace => ({ op: "set", namespace, key: "k", value: 1 }))
      )
    }
  }

  beforeAll(async () => {
    page = visit.page
    await visit.serve()
    await fill(["cities", "tenant:acme", "tenant:acme/settings", "tenant:acme/stock", "tenant:acme-b/settings"])
    await client().set("tenant:acme/stock", "apples", 12)
    await visit.signIn("dev-key", `${visit.base}/console/#/store`)
  })

  const namespaces = () => page.getByRole("list", { name: "Namespaces" })
  const tenants = () => page.getByRole("list", { name: "Tenants" })
  const tab = (name: string) => page.getByRole("tab", { name })
  const foot = (text: string) => page.getByRole("status").getByText(text, { exact: true }).waitFor()
  const find = (text: string) => page.getByLabel("Find or open a namespace").fill(text)

  /** The rows of a list that are drawn. */
  const rows = async (list: Locator): Promise<ReadonlyArray<string>> =>
    (await list.getByRole("listitem").allInnerTexts()).map(text => text.replaceAll("\n", " "))

  const hasRows = (list: Locator, expected: ReadonlyArray<string>) =>
    eventually(async () => assert.deepStrictEqual(await rows(list), expected))

  /** The look at the end of the log, which is taken every ten seconds and where the page is back online. */
  const look = () => page.evaluate("dispatchEvent(new Event('online'))")

  /** The requests during some work, except those for the end of the log, which are periodic. */
  const requestsOf = async (work: () => Promise<unknown>): Promise<ReadonlyArray<string>> => {
    const asked: Array<string> = []
    const note = (request: Request) => {
      const { pathname, searchParams } = new URL(request.url())
      const of = searchParams.get("namespace") ?? searchParams.get("prefix")
      if (/\/(?:kv|tenants)$/.test(pathname)) asked.push(of ? `${pathname} ${of}` : pathname)
    }
    page.on("request", note)
    await work()
    page.off("request", note)
    return asked
  }

  it("lists tenants with the numbers of their namespaces and entries", async () => {
    await foot("5 namespaces")
    await tab("Tenants").click()
    await foot("2 tenants")
    await hasRows(tenants(), [
      "Without a tenant 1 namespace · 1 entry",
      "acme 3 namespaces · 4 entries",
      "acme-b 1 namespace · 1 entry"
    ])
    await isFit()
    await page.getByLabel("Find a tenant").fill("-b")
    await foot("1 of 2 tenants")
    await hasRows(tenants(), ["acme-b 1 namespace · 1 entry"])
    await page.getByLabel("Find a tenant").fill("none")
    await page.getByText("No tenant ID contains “none”.").waitFor()
  })

  it("shows the namespaces of the tenant that is chosen by the keyboard, then all of them again", async () => {
    await page.getByLabel("Find a tenant").fill("")
    await tenants().getByRole("listitem").nth(2).waitFor()
    await page.keyboard.press("Tab")
    for (const name of [/^Without a tenant/, /^acme /]) {
      await page.keyboard.press("ArrowDown")
      await getsFocus(tenants().getByRole("button", { name }))
    }
    await page.keyboard.press("Enter")
    await foot("3 namespaces")
    await getsFocus(tab("Namespaces"))
    await hasRows(namespaces(), ["tenant:acme 1", "settings 1", "stock 2"])
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
    await hasRows(namespaces(), ["cities 1"])
    await page.getByRole("button", { name: "All namespaces" }).click()
  })

  it("has the chosen tenant in the address: a reload, a link and the way back keep it, and an edit stays", async () => {
    await open("store")
    await tab("Tenants").click()
    await tenants().getByRole("button", { name: "acme 3 namespaces" }).click()
    await foot("3 namespaces")
    const stock = namespaces().getByRole("link", { name: /^stock/ })
    await stock.click()
    const address = `${visit.base}/console/#/store/${encodeURIComponent("tenant:acme/stock")}?tenant=acme`
    await page.waitForURL(address)
    await page.reload()
    await page.getByRole("heading", { name: "tenant:acme/stock" }).waitFor()
    await foot("3 namespaces")
    await stock.waitFor()

    const other = await visit.newPage()
    await visit.signIn("dev-key", address, other)
    await other.getByRole("heading", { name: "tenant:acme/stock" }).waitFor()
    await other.getByText("Tenant acme", { exact: true }).waitFor()
    await other.close()

    const apples = `/store/${encodeURIComponent("tenant:acme/stock")}/apples`
    await page
      .getByRole("list", { name: "Keys of tenant:acme/stock" })
      .getByRole("link", { name: /^apples/ })
      .click()
    await visit.shows("12")
    await visit.editor().fill("13")
    await page.getByRole("button", { name: "All namespaces" }).click()
    await namespaces().getByRole("link", { name: "cities" }).waitFor()
    assert.isTrue(page.url().endsWith(apples))
    await page.goBack()
    await foot("3 namespaces")
    assert.isTrue(page.url().endsWith(`${apples}?tenant=acme`))
    await visit.shows("13")
    assert.strictEqual(await page.getByRole("dialog").count(), 0)
    await visit.editor().fill("12")
    await page.getByRole("button", { name: "All namespaces" }).click()
  })

  it("reads again what is seen when the log has moved, and nothing else", async () => {
    await namespaces().getByRole("link", { name: "tenant:acme/stock 2" }).waitFor()
    await open("store")
    await page.getByText("Select a namespace.").waitFor()
    const unchanged = await requestsOf(async () => {
      const answered = page.waitForResponse(/\/changes\?/)
      await look()
      await (await answered).finished()
      await page.evaluate("new Promise(requestAnimationFrame)")
    })
    assert.deepStrictEqual(unchanged, [])
    const changed = await requestsOf(async () => {
      await client().set("tenant:acme/stock", "pears", 3)
      await look()
      await namespaces().getByRole("link", { name: "tenant:acme/stock 3" }).waitFor()
    })
    assert.deepStrictEqual(changed, ["/api/v1/kv"])
  })

  it("says how far 12,000 namespaces are listed, and finds the others by the start of their names", async () => {
    await fill(Array.from({ length: many }, (_, index) => nameOf(index)))
    await page.reload()
    await foot("First 1,000 namespaces. Scroll or type the start of a name to find more.")
    await isFit()
    const end = page.getByText("First 10,000 namespaces. Type the start of a name to find more.")
    const last = namespaces().getByRole("link", { name: nameOf(9993) })
    while ((await end.count()) === 0 || (await last.count()) === 0) {
      await namespaces().evaluate(element => {
        element.scrollTop = element.scrollHeight
      })
      await page.evaluate("new Promise(requestAnimationFrame)")
    }
    assert.isBelow(await namespaces().getByRole("listitem").count(), 60)
    // Of all that is listed the page in view is read again.
    const asked = await requestsOf(async () => {
      await client().set(nameOf(9993), "l", 2)
      await look()
      await namespaces()
        .getByRole("link", { name: `${nameOf(9993)} 2` })
        .waitFor()
    })
    assert.deepStrictEqual(asked, ["/api/v1/kv"])

    await find(nameOf(11_999).slice(0, -1))
    await foot("10 namespaces")
    await namespaces()
      .getByRole("link", { name: nameOf(11_999) })
      .click()
    await page.getByRole("heading", { name: nameOf(11_999) }).waitFor()
    await page.getByText("1 entry").waitFor()

    await tab("Tenants").click()
    await tenants().getByRole("button", { name: "big 12,000 namespaces · 12,001 entries" }).click()
    await foot("First 1,000 namespaces. Scroll or type the start of a name to find more.")
    await find("n-1199")
    await foot("10 namespaces")
    await eventually(async () => assert.include(await rows(namespaces()), "n-11999 1"))
  })
})
