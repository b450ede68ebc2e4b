/** What an operator does first in the console: look at what waits, go somewhere by the keyboard, and copy. */
import type { Page } from "playwright-core"
import { assert, beforeAll, it } from "vitest"
import { describeVisit, eventually, violations } from "./Visit.ts"

const long = "tenant:acme/environments/production/europe-west-1/services/checkout"

describeVisit("The console of an operator", visit => {
  const { client, isFit, open } = visit
  let page: Page

  beforeAll(async () => {
    page = visit.page
    await visit.serve()
    await client().set(`${long}/frontend`, "feature.payment.rollout", 1)
    await client().set(`${long}/backend`, "a", 1)
    await client().set("cities", "praha", "Praha")
    await visit.signIn("dev-key", `${visit.base}/console/`)
  })

  const namespaces = () => page.getByRole("list", { name: "Namespaces" })

  it("shows what the service holds, once", async () => {
    await page.getByRole("term").filter({ hasText: "Namespaces" }).waitFor()
    await eventually(async () => {
      const entries = page.locator(".tile").filter({ hasText: "Entries" })
      assert.match((await entries.textContent()) ?? "", /3$/)
    })
    await page.getByRole("button", { name: "5 min", exact: true }).click()
    await page.getByRole("heading", { name: "Last 5 min" }).waitFor()
    await isFit()
  })

  it("dims and dates what does not come any longer, and nothing else", async () => {
    const region = (name: string) => page.getByRole("region", { name }).getByText(/^as of /)
    const done = region("What the service does")
    await page.route("**/activity?*", route => route.abort())
    await done.waitFor()
    await region("What the service holds").waitFor()
    await page.getByText("The figures of the service do not arrive").waitFor()
    // Of the tenants and the plots too, and not of the dependencies.
    assert.strictEqual(await page.getByText(/^as of /).count(), 4)
    await isFit()
    await page.unroute("**/activity?*")
    await done.waitFor({ state: "detached" })
  })

  it("has the long error of a dependency within its panel", async () => {
    const error = `connect ECONNREFUSED ${"https://agents.example.com/".repeat(6)}`
    await page.route("**/health", async route => {
      const response = await route.fetch()
      const report: { readonly dependencies: ReadonlyArray<object> } = await response.json()
      const dependencies = report.dependencies.map(one => ({ ...one, status: "unhealthy", error }))
      await route.fulfill({ response, json: { ...report, dependencies } })
    })
    await page.getByText(error).first().waitFor()
    const widths = "(box => [box.scrollWidth, box.clientWidth])(document.querySelector('[aria-label=Dependencies]'))"
    const [whole, seen] = await page.evaluate<[number, number]>(widths)
    assert.isAtMost(whole, seen)
    await page.unroute("**/health")
  })

  it("says that it has no such page", async () => {
    await open("nosuchpage")
    await page.getByRole("heading", { name: "There is no such page" }).waitFor()
    await page.getByText("nosuchpage").waitFor()
  })

  it("has namespaces as a tree, marks a deep link in it, and closes a group", async () => {
    await open("store", `${long}/backend`, "a")
    await namespaces()
      .getByRole("link", { name: `${long}/backend 1` })
      .waitFor()
    const group = namespaces().getByRole("button", { name: `${long}/ 2 namespaces` })
    // Among what was searched for, the parts of a name are words of their own.
    const frontend = namespaces().getByRole("link", { name: /\/frontend 1$/ })
    assert.strictEqual(await group.getAttribute("aria-expanded"), "true")
    await open("store", "cities")
    await group.click()
    await frontend.waitFor({ state: "detached" })
    await isFit()
    await page.getByLabel("Find or open a namespace").fill("frontend")
    await frontend.waitFor()
    await page.getByLabel("Find or open a namespace").fill("")
    await open("store", `${long}/frontend`)
    await frontend.waitFor()
    assert.strictEqual(await frontend.getAttribute("aria-current"), "true")
  })

  it("creates what is not there, where it was looked for", async () => {
    await open("store", "cities", "brno")
    await page.getByText("This entry does not exist.").waitFor()
    await page.getByRole("button", { name: "Create this entry" }).click()
    const dialog = page.getByRole("dialog")
    assert.strictEqual(await dialog.getByLabel("Key").inputValue(), "brno")
    await dialog.getByRole("button", { name: "Create", exact: true }).click()
    await page.getByText("version 1", { exact: true }).waitFor()
    await page.getByLabel("Keys that start with").fill("ostrava")
    await page.getByRole("button", { name: "Create ostrava" }).click()
    assert.strictEqual(await dialog.getByLabel("Key").inputValue(), "ostrava")
    await page.keyboard.press("Escape")
  })

  it("goes to a namespace by the palette, and shows all keys", async () => {
    await open("overview")
    await page.keyboard.press("Control+k")
    const field = page.getByRole("combobox", { name: "Command" })
    await field.fill("tenant:acme/env")
    await page.getByRole("option", { name: /frontend/ }).waitFor()
    assert.deepStrictEqual(await violations(page), [])
    await page.getByRole("option", { name: /backend/ }).waitFor()
    await field.fill("feed")
    await page.getByRole("option", { name: "Feed Page" }).waitFor()
    await page.keyboard.press("Enter")
    await page.getByLabel("Filter by namespace, key or actor").waitFor()
    await page.locator("main").focus()
    await page.keyboard.press("?")
    await page.getByRole("dialog", { name: "Keys" }).getByText("Save the entry").waitFor()
    await page.keyboard.press("Escape")
  })

  it("copies the command that reads an entry", async () => {
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"])
    await open("store", "cities", "praha")
    await page.getByRole("region", { name: "Entry" }).getByLabel("Copy").selectOption("Command line")
    await eventually(async () => {
      const copied = await page.evaluate<string>("navigator.clipboard.readText()")
      assert.strictEqual(copied, `causeway --url ${visit.base} kv get cities praha`)
    })
  })

  it("copies the key, or the value, in the row of a key", async () => {
    await open("store", "cities")
    const row = page.getByRole("list", { name: "Keys of cities" }).getByRole("listitem").filter({ hasText: "praha" })
    for (const [what, expected] of [
      ["Key", "praha"],
      ["Value", '"Praha"']
    ] as const) {
      await row.hover()
      await row.getByLabel("Copy").selectOption(what)
      await eventually(async () =>
        assert.strictEqual(await page.evaluate<string>("navigator.clipboard.readText()"), expected)
      )
    }
  })

  it("has the sessions that wait first, and the gateway's records out of the way", async () => {
    await open("sessions")
    for (const text of ["/ask", "hello"]) {
      await page.getByRole("button", { name: "New" }).click()
      await visit.create()
      await page.getByLabel("Message").fill(text)
      await visit.send()
    }
    const rows = page.getByRole("list", { name: "Sessions, last active first" }).getByRole("listitem")
    await rows.first().filter({ hasText: "waiting for you" }).waitFor()
    await page.getByRole("link", { name: /Sessions\s*1 waiting for you/ }).waitFor()
    await page.getByRole("button", { name: "Waiting 1" }).click()
    await eventually(async () => assert.strictEqual(await rows.count(), 1))
    await page.getByRole("button", { name: "Failed" }).click()
    await page.getByText("No session has failed.").waitFor()
    await isFit()
    // One that waits does not run.
    await page.getByRole("button", { name: "Running" }).click()
    await page.getByText("No session is running.").waitFor()

    // Neither the title nor the id is of a session that is listed.
    const id = /sessions\/([0-9a-f]{36})/.exec(page.url())?.[1] ?? ""
    for (const text of ["hello", id]) {
      await page.keyboard.press("Control+k")
      await page.getByRole("combobox", { name: "Command" }).fill(text)
      await page.getByRole("option", { name: /hello Session/ }).waitFor()
      await page.keyboard.press("Escape")
    }

    await open("feed")
    const hidden = page.getByText(/of the service hidden/)
    await hidden.waitFor()
    assert.strictEqual(await page.getByRole("link", { name: /\/sessions/ }).count(), 0)
    await page.getByLabel("Records of the service").check()
    await hidden.waitFor({ state: "detached" })
    await page.getByRole("listitem").filter({ hasText: "of the service" }).first().waitFor()
    await page.getByLabel("Records of the service").uncheck()
    await client().set("tenant:acme/threads", "a", 1)
    await client().set("cities", "last", 1)
    await page.getByRole("link", { name: /cities.*last/ }).waitFor()
    assert.strictEqual(await page.getByRole("link", { name: /threads/ }).count(), 0)
    await isFit()
  })
})
