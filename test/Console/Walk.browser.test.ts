/** The console as its users see it, with one browser and a service that is restarted. */
import { readFileSync } from "node:fs"
import { rename } from "node:fs/promises"
import { join } from "node:path"
import type { Effect } from "effect"
import type { Page } from "playwright-core"
import { assert, beforeAll, it } from "vitest"
import { freePort } from "../postgres/Server.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import type { start } from "./Service.ts"
import { describeVisit, violations } from "./Visit.ts"

const namespace = "tenant:acme/settings"

describeVisit("The console in a browser", visit => {
  const { client, editor, isFit, open, run, shows, signIn, signOut } = visit
  let page: Page
  let env: Readonly<Record<string, string>> = {}
  let server: Effect.Effect.Success<ReturnType<typeof start>>

  beforeAll(async () => {
    page = visit.page
    const directory = await run(temporaryDirectory)
    env = { DATA_DIR: directory, PORT: String(await freePort()) }
    server = await visit.serve(env)
  })

  const say = async (text: string) => {
    // Otherwise the turn before would still be in progress.
    await page.getByRole("button", { name: "Interrupt", exact: true }).waitFor({ state: "detached" })
    await visit.say(text)
  }

  it("refuses a wrong key, and forgets a right one at the end", async () => {
    await signIn("wrong")
    await page.getByRole("alert").filter({ hasText: "Invalid key or token." }).waitFor()
    await isFit()
    await page.getByLabel("Key or token").fill("dev-key")
    await page.getByRole("button", { name: "Sign in" }).click()
    await page.getByText("reads and writes").waitFor()
    await page.reload()
    await page.getByText("reads and writes").waitFor()
    await page.evaluate("sessionStorage.setItem('host.cart', '3 apples')")
    await signOut()
    await page.reload()
    await page.getByLabel("Key or token").waitFor()
    const kept = await page.evaluate<object>("({ ...localStorage, ...sessionStorage })")
    assert.deepStrictEqual(kept, { "host.cart": "3 apples" }, "what another page of the origin keeps is its own")
  })

  it("shows health, dependencies, breakers and plots", async () => {
    await signIn()
    await page.getByRole("heading", { name: "Everything works" }).waitFor()
    const platform = page.getByRole("row", { name: /^Agent platform/ })
    await platform.filter({ hasText: "ok" }).filter({ hasText: "closed" }).waitFor()
    await platform.filter({ hasText: /http:\/\/127\.0\.0\.1:\d+/ }).waitFor()
    await page.getByRole("img", { name: /^Requests: succeeded \d/ }).waitFor()
    await page.getByRole("img", { name: /^Event loop delay: p99 \d/ }).waitFor()
    await page.getByText("Longest lag").waitFor()
    assert.strictEqual(await page.getByText(/NaN/).count(), 0)
    assert.strictEqual(await page.getByText("Stops of agent instances").count(), 0)
    // The past is not that of the page: it is there at once after a reload.
    await page.reload()
    await page.getByRole("img", { name: /^Event loop delay: p99 \d/ }).waitFor()
    await isFit()
  })

  it("shows that the store is unavailable, which the health of the gateway does not include", async () => {
    const { DATA_DIR = "" } = env
    const file = join(DATA_DIR, "kv.db")
    await rename(file, `${file}.away`)
    await page.getByRole("heading", { name: "The store is unavailable" }).waitFor()
    await page.getByRole("row", { name: /^Store unhealthy/ }).waitFor()
    await isFit()
    await rename(`${file}.away`, file)
    await page.getByRole("heading", { name: "Everything works" }).waitFor()
    await page.getByRole("row", { name: /^Store ok/ }).waitFor()
  })

  it("creates an entry, and shows a change by another client at once", async () => {
    await open("store")
    await page.getByLabel("Find or open a namespace").fill(namespace)
    await page.keyboard.press("Enter")
    await page.getByText("This namespace has no entries.").waitFor()
    await page.getByRole("button", { name: "New" }).click()
    const dialog = page.getByRole("dialog")
    await dialog.getByLabel("Key").fill("theme")
    await dialog.getByLabel("Value").fill('{"limit":12345678901234567890,"2":"b",\n"1" "a"}')
    await dialog.getByRole("button", { name: "Create" }).click()
    await dialog.getByText("Line 2, column 5: A colon is expected").waitFor()
    await dialog.getByLabel("Value").fill('{"limit":12345678901234567890,"2":"b","1":"a"}')
    await dialog.getByRole("button", { name: "Create" }).click()
    await page.getByText("version 1", { exact: true }).waitFor()
    await shows(/"limit": 12345678901234567890,\n {2}"2": "b",\n {2}"1": "a"/)

    await client().set(namespace, "theme", { dark: true }, { actor: "anna" })
    await page.getByText("version 2", { exact: true }).waitFor()
    await shows(/"dark": true/)
    await page.getByText("Changed by anna to version 2").waitFor()
    await client().set(namespace, "locale", "en", { actor: "ben" })
    await page.getByRole("link", { name: /^locale/ }).waitFor()
    await page.getByText("2 entries").waitFor()
    await isFit()
  })

  it("edits an entry with its version as the precondition, and shows a conflict side by side", async () => {
    await open("store", namespace, "theme")
    await shows(/"dark": true/)
    await editor().fill('{"dark": false, "by": 1e2}')
    await page.keyboard.press("Control+s")
    await page.getByText("Saved as version 3").waitFor()

    await editor().fill('{"dark": "mine"}')
    await client().set(namespace, "theme", { dark: "theirs" }, { actor: "cara" })
    await page.getByText("cara changed this entry to version 4 while you were editing version 3.").waitFor()
    await page.getByRole("button", { name: "Save" }).click()
    const dialog = page.getByRole("dialog")
    await dialog.getByText("Stored: version 4 by cara").waitFor()
    assert.include(await dialog.locator("td.removed").textContent(), "theirs")
    assert.include(await dialog.locator("td.added").textContent(), "mine")
    assert.deepStrictEqual(await violations(page), [])
    await dialog.getByRole("button", { name: "Overwrite version 4" }).click()
    await page.getByText("Saved as version 5").waitFor()
    assert.deepStrictEqual((await client().get(namespace, "theme"))?.value, { dark: "mine" })

    await page.getByLabel("Expires").selectOption("after")
    await page.getByRole("button", { name: "Save" }).click()
    await page.getByText("Saved as version 6").waitFor()
    const left = (await client().get(namespace, "theme"))!.expiresAt! - Date.now()
    assert.isTrue(left > 0 && left <= 3_600_000)
  })

  it("deletes an entry, exports a namespace and imports it", async () => {
    await page.getByRole("button", { name: "Delete" }).click()
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click()
    await page.getByText("1 entry").waitFor()
    assert.isUndefined(await client().get(namespace, "theme"))

    await page.getByRole("button", { name: "Import and export" }).click()
    const dialog = page.getByRole("dialog")
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      dialog.getByRole("button", { name: "Export" }).click()
    ])
    const exported = readFileSync(await download.path(), "utf8")
    assert.strictEqual(exported, '{"key":"locale","value":"en","expiresAt":null}\n')
    await visit.importLines(
      "stop the import",
      '{"key":"big","value":98765432109876543210}',
      "",
      '{"key":"small","value":[1.0]}'
    )
    await dialog.getByText("Imported 2 entries.").waitFor()
    // More than a batch; of the two lines of one key the first one counts.
    const many = Array.from({ length: 700 }, (_, i) => `{"key":"m-${i}","value":${i}}`)
    const known = '{"key":"small","value":1}'
    await visit.importLines("skip it", '{"key":"big","value":1}', ...many, known, '{"key":"m-699","value":0}')
    await dialog.getByText("Imported 700 entries. Skipped 3 entries already present.").waitFor()
    assert.strictEqual((await client().get(namespace, "m-699"))?.value, 699)
    await visit.importLines("replace it", '{"key":"m-699","value":"new"}')
    await dialog.getByText("Imported 1 entry.").waitFor()
    assert.strictEqual((await client().get(namespace, "m-699"))?.value, "new")
    await client().deletePrefix(namespace, "m-")
    await dialog.getByRole("button", { name: "Close" }).click()
    await page.getByRole("link", { name: /^big/ }).click()
    await shows(/^98765432109876543210$/)
  })

  it("shows changes as they happen, paused and filtered", async () => {
    await open("feed")
    const feed = page.getByRole("list", { name: "Changes, newest first" })
    await feed.getByRole("link", { name: /delete.*m-99\b/ }).waitFor()
    await page.getByLabel("Filter by namespace, key or actor").fill("anna")
    await page.getByText("No changes match the filter.").waitFor()
    await client().set(namespace, "fresh", { a: 1 }, { actor: "anna" })
    await feed.getByRole("link", { name: /fresh.*anna/ }).waitFor()
    await page.getByRole("button", { name: "Pause" }).click()
    await client().delete(namespace, "fresh", { actor: "anna" })
    await page.getByRole("button", { name: "Resume, 1 new" }).click()
    await feed.getByRole("link", { name: /delete.*fresh.*anna/ }).waitFor()
    await isFit()
  })

  it("has a whole conversation: thoughts, tools, an approval, a question, usage and events", async () => {
    await open("sessions")
    await page.getByRole("button", { name: "New" }).click()
    await page.getByLabel("Agent type").fill("coder")
    await visit.create()
    await say("hello there")
    const log = page.getByRole("log", { name: "Conversation" })
    await log.getByText("echo: hello there").waitFor()
    await log.getByRole("button", { name: /^Thought/ }).click()
    await log.getByText("What was said can be echoed.", { exact: true }).last().waitFor()
    await log.getByRole("button", { name: /^write_file done/ }).click()
    await log.getByText("wrote notes/last-message.md").waitFor()
    await page.getByRole("group", { name: "Usage" }).getByText("103 tokens in").waitFor()

    await say("/approve")
    await page.getByRole("region", { name: "Approval" }).getByText("rm -r build").waitFor()
    await isFit()
    const press = (name: string) => () => page.getByRole("button", { name, exact: true }).click()
    const approval = page.getByRole("region", { name: "Approval" })
    await visit.attempt(press("Approve"), approval.getByText("Answer: approved"))
    await say("/ask")
    await page.getByRole("link", { name: /hello there.*waiting/ }).waitFor()
    await visit.attempt(press("blue"), log.getByText("answer: blue"))
    await say("/hang")
    await visit.attempt(press("Interrupt"), log.getByText("The turn was interrupted"))

    const events = page.getByRole("region", { name: "Events" })
    await events.getByRole("button", { name: /turn_interrupted/ }).click()
    await events.getByText('"type": "turn_interrupted"').waitFor()
    await isFit()
  })

  it("continues by itself after the store was unavailable", async () => {
    const requests = /\/api\/v1\/(?:kv|changes)/
    const body = '{"error":"Store unavailable"}'
    await page.route(requests, route => route.fulfill({ status: 503, contentType: "application/json", body }))
    await open("feed")
    await page.getByText("Store unavailable. Trying again…").waitFor()
    await open("store", namespace, "locale")
    await page.getByRole("region", { name: "Entry" }).getByText("Store unavailable. Trying again…").waitFor()
    await page.unroute(requests)
    await shows(/"en"/)
    await page.getByRole("link", { name: /^locale/ }).waitFor()
  })

  it("recovers by itself when the service is restarted", async () => {
    await open("store", namespace, "locale")
    await shows(/"en"/)
    await run(server.kill("SIGTERM"))
    await run(server.ended)
    await page.getByText("The service does not answer. Trying again").waitFor()
    server = await visit.serve(env)
    await page.getByText("The service does not answer. Trying again").waitFor({ state: "detached" })
    await client().set(namespace, "locale", "fr", { actor: "ben" })
    await shows(/"fr"/)
    await open("sessions")
    await page.getByRole("link", { name: /hello there/ }).click()
    await say("after the restart")
    await page.getByRole("log").getByText("echo: after the restart").waitFor()
    await signOut()
  })

  it("offers nothing that writes with the key that only reads", async () => {
    await signIn("dev-agent-key")
    await page.getByText("reads only").waitFor()
    await open("store", namespace, "locale")
    await shows(/"fr"/)
    assert.isFalse(await editor().isEditable())
    for (const name of ["New", "Save", "Delete", "Format", "Discard"]) {
      assert.strictEqual(await page.getByRole("button", { name, exact: true }).count(), 0, name)
    }
    await page.getByRole("button", { name: "Import and export" }).click()
    assert.strictEqual(await page.getByRole("dialog").getByRole("button", { name: "Import", exact: true }).count(), 0)
    await page.getByRole("dialog").getByRole("button", { name: "Close" }).click()
    await open("sessions")
    await page.getByRole("link", { name: /hello there/ }).click()
    await page.getByRole("log").getByText("echo: after the restart").waitFor()
    for (const name of ["New", "Send", "Delete session", "Stop"]) {
      assert.strictEqual(await page.getByRole("button", { name, exact: true }).count(), 0, name)
    }
    await signOut()
  })
})
