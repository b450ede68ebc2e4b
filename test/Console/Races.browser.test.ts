/** The console with concurrent changes: removed history, slow answers, other writers. */
import { Duration, Effect } from "effect"
import type { Locator, Page, Route } from "playwright-core"
import { assert, beforeAll, it } from "vitest"
import { JsonText } from "../../src/base/Json/JsonText.ts"
import { ChangeLog } from "../../src/Kv/ChangeLog.ts"
import { Store } from "../../src/Kv/Store.ts"
import * as Backends from "../../src/Storage/Backends.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { describeVisit, eventually } from "./Visit.ts"

/** Writes an entry three times, and removes the first two changes from the log. */
const fillAndTrim = (directory: string, namespace: string) =>
  Effect.gen(function* () {
    const log = yield* ChangeLog
    const store = yield* Store
    for (const value of ["1", "2", "3"]) {
      const set = { op: "set", namespace, key: "k", value: JsonText(value), expiresAt: null } as const
      yield* store.commit({ actor: "fixture", operations: [set] })
    }
    const kept = Effect.map(log.read({ after: 2, limit: 10, tenant: "" }), ({ changes }) => changes.length)
    assert.strictEqual(yield* kept, 1)
    // A record is removed once it is older than now.
    let removed = 0
    while (removed < 2) removed += yield* log.trim(Duration.zero)
    assert.strictEqual(yield* kept, 1)
  }).pipe(Effect.provide(Backends.sqlite({ directory })), Effect.orDie)

/** A script that sets the clock of a page off by some milliseconds. */
const clockThatIsOff = (ms: number): string => `{
  const { now } = Date
  Date = class extends Date {
    constructor(...given) {
      given.length === 0 ? super(now() + ${ms}) : super(...given)
    }
    static now() {
      return now() + ${ms}
    }
  }
}`

describeVisit("The console with concurrent changes", visit => {
  const { client, editor, hold, open, run, shows } = visit
  let page: Page

  beforeAll(async () => {
    page = visit.page
    const directory = await run(temporaryDirectory)
    await run(fillAndTrim(directory, "old"))
    await visit.enter({ DATA_DIR: directory, CHANGES_RETENTION: "1 hour" })
  })

  const hasCount = (elements: Locator, count: number) =>
    eventually(async () => assert.strictEqual(await elements.count(), count))

  it("shows the changes that are kept after the first ones were removed, with few requests", async () => {
    const asked: Array<string> = []
    const note = (request: { readonly url: () => string }) => {
      if (request.url().includes("/changes?")) asked.push(request.url())
    }
    page.on("request", note)
    await open("feed")
    const feed = page.getByRole("list", { name: "Changes, newest first" })
    await feed.getByRole("link", { name: /old.*k.*v3/ }).waitFor()
    await client().set("old", "other", 1)
    await feed.getByRole("link", { name: /old.*other.*v1/ }).waitFor()
    page.off("request", note)
    // The end of the log, the refused position, the one that is kept, and another poll after a concurrent change.
    assert.isAtMost(asked.length, 6, asked.join("\n"))

    await open("store", "old", "k")
    await page.getByRole("tab", { name: "History" }).click()
    await page.getByRole("region", { name: "No longer kept compared with Version 3" }).waitFor()
    await hasCount(page.getByRole("list", { name: "Versions" }).getByRole("button"), 1)
  })

  const save = () => page.getByRole("button", { name: "Save" }).click()

  /** Makes requests fail. */
  const refuse = async (pattern: RegExp, method: string, status: number) => {
    const handler = (route: Route) =>
      route.request().method() === method
        ? route.fulfill({ status, contentType: "application/json", body: '{"error":"refused by the test"}' })
        : route.fallback()
    await page.route(pattern, handler)
    return () => page.unroute(pattern, handler)
  }

  it("reports that an entry cannot be read after a conflict, and not that it was deleted", async () => {
    await client().set("typed", "other", 1)
    await open("store", "typed", "other")
    await page.getByRole("heading", { name: "other" }).waitFor()
    await page.getByText("version 1", { exact: true }).waitFor()
    await editor().fill("2")
    const { release, reached } = await hold(/\/kv\/typed\/other$/, "PUT", "request")
    await save()
    await reached
    await client().set("typed", "other", "theirs", { actor: "anna" })
    const end = await refuse(/\/kv\/typed\/other$/, "GET", 403)
    await release()
    await page.getByText("Not saved: the entry is no longer at version 1. refused by the test").waitFor()
    assert.strictEqual(await page.getByRole("dialog").count(), 0)
    await end()
    await save()
    await page.getByRole("dialog").getByText("Stored: version 2 by anna").waitFor()
    await page.getByRole("dialog").getByRole("button", { name: "Use the stored value" }).click()
  })

  it("reads an entry again that another client has written before it was deleted", async () => {
    const { release, reached } = await hold(/\/kv\/typed\/other\?/, "DELETE", "request")
    await page.getByRole("button", { name: "Delete" }).click()
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click()
    await reached
    await client().set("typed", "other", "again", { actor: "ben" })
    await release()
    await page.getByText("Not deleted: another client has changed the entry.").waitFor()
    await page.getByText("version 3", { exact: true }).waitFor()
    await shows('"again"')
  })

  it("shows the texts of a conflict whole if a comparison would take seconds", async () => {
    await client().set("long", "k", 0)
    await open("store", "long", "k")
    await page.getByText("version 1", { exact: true }).waitFor()
    await editor().fill("1")
    const numbers = Array.from({ length: 9000 }, (_, index) => index)
    await client().set("long", "k", numbers, { actor: "anna" })
    await save()
    const dialog = page.getByRole("dialog")
    const theirs = await dialog.getByRole("textbox", { name: "Stored: version 2 by anna" }).inputValue()
    assert.deepStrictEqual(JSON.parse(theirs), numbers)
    assert.strictEqual(await dialog.getByRole("textbox", { name: "Yours: based on version 1" }).inputValue(), "1")
    await dialog.getByRole("button", { name: "Use the stored value" }).click()
    await open("store", "typed", "other")
    await page.getByText("version 3", { exact: true }).waitFor()
  })

  it("expires entries by the clock of the service, not of the browser", async () => {
    let version = 3
    for (const hours of [-2, 2]) {
      // Not by Playwright, whose clock takes the place of all timers of all pages for good.
      const other = await visit.newPage()
      await other.addInitScript(clockThatIsOff(hours * 3_600_000))
      await visit.signIn("dev-key", `${visit.base}/console/#/store/typed/other`, other)
      const saveWith = async (expiry: string) => {
        await other.getByLabel("Expires").selectOption(expiry)
        await other.getByRole("button", { name: "Save" }).click()
        await other.getByText(`Saved as version ${++version}`).waitFor()
      }
      await saveWith("after")
      const left = (await client().get("typed", "other"))!.expiresAt! - Date.now()
      assert.isTrue(left > 0 && left <= 3_600_000, `${hours}: ${left}`)
      await saveWith("never")
      await other.close()
    }
  })

  it("reads the keys again that it has listed before the feed has started", async () => {
    await client().set("slow", "a", 1)
    const { release, reached } = await hold(/\/changes\?after=\d+&limit=1$/, "GET", "request")
    await open("store", "slow")
    await reached
    await page.getByText("1 entry").waitFor()
    await client().set("slow", "b", 1)
    await client().delete("slow", "a")
    await release()
    const list = page.getByRole("list", { name: "Keys of slow" })
    await list.getByRole("link", { name: /^b/ }).waitFor()
    await list.getByRole("link", { name: /^a/ }).waitFor({ state: "detached" })
  })
})
