/** The console with an open entry: what other clients change, what expires, and what is not answered. Also a new one. */
import type { Page, Route } from "playwright-core"
import { assert, beforeAll, it } from "vitest"
import { describeVisit, eventually, violations } from "./Visit.ts"

const hourMs = 3_600_000

describeVisit("The console with an open entry", visit => {
  const { client, editor, open, shows } = visit
  let page: Page

  beforeAll(async () => {
    page = visit.page
    await visit.enter()
  })

  const save = () => page.getByRole("button", { name: "Save" }).click()
  const dialog = () => page.getByRole("dialog", { name: "Edit conflict" })

  /** Handles requests to an entry by their method until the returned function is called. */
  const handle = async (key: string, handlers: Readonly<Record<string, (route: Route) => Promise<void>>>) => {
    const pattern = new RegExp(`/kv/open/${key}$`)
    const handled: Array<Promise<void>> = []
    let isOver = false
    const handler = (route: Route) => {
      const own = isOver ? undefined : handlers[route.request().method()]
      const done = own === undefined ? route.fallback() : own(route)
      handled.push(done)
      return done
    }
    await page.route(pattern, handler)
    return async () => {
      isOver = true
      // A route that is taken away is handled by that.
      await Promise.all(handled)
      await page.unroute(pattern, handler)
    }
  }

  it("shows what is in conflict if only the expiry differs", async () => {
    await client().set("open", "expiring", 2, { ttlMs: hourMs })
    await open("store", "open", "expiring")
    await shows("2")
    await page.getByLabel("Expires").selectOption("after")
    await client().set("open", "expiring", 2, { actor: "ben" })
    await save()
    await dialog().getByText("The values are the same.").waitFor()
    const expiries = dialog().getByRole("region", { name: "Stored: expires compared with Yours: expires" })
    assert.strictEqual(await expiries.locator("td.removed").textContent(), "never")
    assert.strictEqual(await expiries.locator("td.added").textContent(), "1 hour after it is saved")
    assert.deepStrictEqual(await violations(page), [])
    await dialog().getByRole("button", { name: "Overwrite version 2" }).click()
    await page.getByText("Saved as version 3").waitFor()
    assert.isNotNull((await client().get("open", "expiring"))!.expiresAt)
  })

  it("asks for another expiry if that of the entry has passed", async () => {
    await client().set("open", "past", 1)
    const end = await handle("past", {
      GET: async route => {
        const response = await route.fetch()
        await route.fulfill({ response, json: { ...(await response.json()), expiresAt: Date.now() - 1000 } })
      }
    })
    await open("store", "open", "past")
    await shows("1")
    await end()
    await editor().fill("2")
    await save()
    await page.getByText(/^Not saved: the entry expired on .*\. Choose when it expires, and save again\.$/).waitFor()
    assert.strictEqual(await page.getByText("must lie in the future").count(), 0)
    await page.getByLabel("Expires").selectOption("never")
    await page.getByText(/^Not saved/).waitFor({ state: "detached" })
    await save()
    await page.getByText("Saved as version 2").waitFor()
  })

  it("distinguishes an entry that has expired from one that was deleted", async () => {
    const key = "ending"
    const expire = () => client().set("open", key, 2, { ttlMs: 1 })
    await client().set("open", key, 1)
    await open("store", "open", key)
    await shows("1")
    await expire()
    await page.getByText(/^This entry expired on [^.]*\.$/).waitFor()
    await client().set("open", key, 3)
    await shows("3")
    await editor().fill("4")
    await client().delete("open", key, { actor: "anna" })
    await page.getByText(/^This entry was deleted by anna on .* while you were editing\.$/).waitFor()
    await client().set("open", key, 5)
    await expire()
    await page.getByText(/^This entry expired on .* while you were editing\.$/).waitFor()
    await page.getByRole("button", { name: "Compare" }).click()
    await dialog()
      .getByText(/^Your changes are based on version \d+\. The entry expired on .*\. Your/)
      .waitFor()
    await visit.isFit()
    await dialog().getByRole("button", { name: "Keep editing" }).click()
    await page.getByRole("tab", { name: "History" }).click()
    const versions = page.getByRole("list", { name: "Versions" }).getByRole("button")
    await versions
      .first()
      .filter({ hasText: /^expired(?:now|\d)/ })
      .waitFor()
    assert.strictEqual(await versions.filter({ hasText: /^deletedanna/ }).count(), 1)
    await page.getByRole("tab", { name: "Value" }).click()
    await page.getByRole("button", { name: "Discard" }).click()
    await page.getByText("Select a key to see its entry.").waitFor()
  })

  it("adds changes to the history that is open", async () => {
    await client().set("open", "followed", 1)
    await open("store", "open", "followed")
    await page.getByRole("tab", { name: "History" }).click()
    const versions = page.getByRole("list", { name: "Versions" }).getByRole("button")
    await page.getByRole("region", { name: "Before compared with Version 1" }).waitFor()
    await client().set("open", "followed", 2)
    await page.getByRole("region", { name: "Version 1 compared with Version 2" }).waitFor()
    await page.getByRole("button", { name: /^version 1/ }).click()
    await client().delete("open", "followed")
    await eventually(async () => assert.strictEqual(await versions.count(), 3))
    // The change that the user has selected stays.
    await page.getByRole("region", { name: "Before compared with Version 1" }).waitFor()
  })

  it("asks before a new entry is discarded", async () => {
    await open("store", "open")
    const form = page.getByRole("dialog", { name: "New entry in open" })
    const question = page.getByRole("dialog", { name: "Discard the new entry?" })
    const create = () => page.getByRole("button", { name: "New", exact: true }).click()
    await create()
    await form.waitFor()
    await page.keyboard.press("Escape")
    await form.waitFor({ state: "detached" })
    assert.strictEqual(await question.count(), 0, "nothing was typed")

    await create()
    await form.getByLabel("Key").fill("typed")
    await form.getByRole("textbox", { name: "Value" }).fill('{"long": "value"}')
    await page.keyboard.press("Escape")
    await question.getByRole("button", { name: "Cancel" }).click()
    assert.strictEqual(await form.getByLabel("Key").inputValue(), "typed")
    assert.strictEqual(await form.getByRole("textbox", { name: "Value" }).inputValue(), '{"long": "value"}')
    await page.evaluate("history.back()")
    await question.getByRole("button", { name: "Cancel" }).click()
    await form.getByRole("button", { name: "Create" }).click()
    await page.getByRole("heading", { name: "typed" }).waitFor()
    await shows(/"long": "value"/)

    await create()
    await form.getByLabel("Key").fill("other")
    await form.getByRole("button", { name: "Cancel" }).click()
    await question.getByRole("button", { name: "Discard" }).click()
    await question.waitFor({ state: "detached" })
    await create()
    assert.strictEqual(await form.getByLabel("Key").inputValue(), "")
    await form.getByRole("button", { name: "Cancel" }).click()
  })
})
