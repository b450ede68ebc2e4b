/** The console with edits, imports and messages: what it asks before they are lost, and what it restores. */
import type { Page } from "playwright-core"
import { assert, beforeAll, it } from "vitest"
import { describeVisit, eventually } from "./Visit.ts"

describeVisit("The console with edits and imports", visit => {
  const { client, editor, hold, importLines, open, shows } = visit
  let page: Page

  beforeAll(async () => {
    page = visit.page
    await visit.enter()
  })

  const save = () => page.getByRole("button", { name: "Save" }).click()

  it("imports only into the open namespace, reports the invalid line, and skips expired entries", async () => {
    await client().set("lines", "b", 1)
    await open("store", "lines")
    await page.getByRole("link", { name: /^b/ }).waitFor()
    await page.getByRole("button", { name: "Import and export" }).click()
    const dialog = page.getByRole("dialog")
    const good = '{"namespace":"lines","key":"good","value":1,"version":7,"updatedBy":"anna","updatedAt":1}'
    await importLines("replace it", good, '{"namespace":"tenant:a/x","key":"k","value":1}')
    await dialog.getByText('Line 2: its namespace is "tenant:a/x", and not "lines"').waitFor()
    // The lines before the invalid one are written.
    assert.strictEqual((await client().get("lines", "good"))?.version, 1)
    const over = '{"key":"over","value":1,"expiresAt":1000}'
    for (const existing of ["replace it", "skip it"]) {
      await importLines(existing, over, `{"key":"${existing}","value":1}`, over)
      await dialog.getByText("Imported 1 entry. Skipped 2 entries already expired.").waitFor()
      await importLines(existing, '{"key":"x","value":1,"expires_at":1000}')
      // The message of the import before is gone.
      await dialog.getByText(/^Line 1: it has a member "expires_at", which no entry has *$/).waitFor()
    }
    for (const [existing, before] of [
      ["replace it", "fine"],
      ["skip it", "too"],
      ["stop the import", "three"]
    ] as const) {
      const line = (key: string) => `{"key":"${key}","value":1}`
      await importLines(existing, line(before), line(".."), line("behind"))
      await dialog.getByText(/^Line 2: key /).waitFor()
      assert.isDefined(await client().get("lines", before), existing)
    }
    assert.isUndefined(await client().get("lines", "behind"))
    await importLines("stop the import", '{"key":"new","value":1}', '{"key":"b","value":2}')
    await dialog.getByText("Line 2: the entry already exists. Its batch was not written.").waitFor()
    assert.isUndefined(await client().get("lines", "new"))
    await importLines("replace it", '{"key":"small","value":1}', `{"key":"large","value":"${"x".repeat(1_100_000)}"}`)
    await dialog.getByText(/^Line 2: value has /).waitFor()
    assert.isDefined(await client().get("lines", "small"))

    await dialog.getByRole("button", { name: "Close" }).click()
    await dialog.waitFor({ state: "detached" })
  })

  /** Starts an import, whose first batch is held. */
  const startImport = async () => {
    await page.getByRole("button", { name: "Import and export" }).click()
    const { release, reached } = await hold(/\/batch$/, "POST", "request")
    await importLines("stop the import", '{"key":"stopped","value":1}')
    await reached
    return release
  }

  it("reports the progress of an import that Escape or the browser's Back stops", async () => {
    await open("store", "before")
    await page.getByRole("heading", { name: "before" }).waitFor()
    await open("store", "lines")
    await page.getByRole("heading", { name: "lines" }).waitFor()
    const dialog = page.getByRole("dialog")
    const stopped = page.getByRole("dialog", { name: "Import stopped" })
    for (const [stop, isLeft] of [
      [() => page.keyboard.press("Escape"), false],
      [() => page.evaluate("history.back()"), true]
    ] as const) {
      const release = await startImport()
      await stop()
      await stopped.getByText("0 entries of the file were written").waitFor()
      assert.isTrue((await page.evaluate<string>("location.hash")).endsWith("/lines"))
      await release()
      await stopped.getByRole("button", { name: "Close" }).click()
      await dialog.waitFor({ state: "detached" })
      await page.getByRole("heading", { name: isLeft ? "before" : "lines" }).waitFor()
    }
    // Back within the namespace leaves the dialog closed, so that it can be opened again.
    await client().set("lines", "entry", 1)
    await open("store", "lines")
    await page.getByRole("heading", { name: "lines" }).waitFor()
    await open("store", "lines", "entry")
    await page.getByRole("heading", { name: "entry" }).waitFor()
    const release = await startImport()
    await page.evaluate("history.back()")
    await release()
    await stopped.getByRole("button", { name: "Close" }).click()
    await dialog.waitFor({ state: "detached" })
    await page.getByRole("heading", { name: "entry" }).waitFor({ state: "detached" })
    await page.getByRole("button", { name: "Import and export" }).click()
    await page.getByRole("dialog", { name: "Import and export" }).waitFor()
  })

  it("shows hidden characters of names and values, and saves them unchanged", async () => {
    const key = "\u202egnp.exe"
    const value = { "\u202egnp.exe": "a\u200bb" }
    await client().set("hidden", key, value)
    await open("store", "hidden", key)
    await page.getByRole("heading", { name: "<U+202E>gnp.exe" }).waitFor()
    const note = page.getByRole("button", { name: "Line 2, column 4: hidden character U+202E, and 1 more" })
    await note.waitFor()
    await visit.isFit()
    await note.click()
    assert.strictEqual(await page.evaluate("getSelection().toString()"), "\u202e")
    assert.strictEqual(await page.locator(".json-hidden").count(), 2)
    await editor().press("Control+Home")
    await page.keyboard.type(" ")
    await save()
    await page.getByText("Saved as version 2").waitFor()
    assert.deepStrictEqual((await client().get("hidden", key))?.value, value)
    await client().set("hidden", key, { "\u202egnp.exe": "ab" })
    await page.getByRole("tab", { name: "History" }).click()
    const pictures = page.locator("td.removed .hidden-character")
    await pictures.first().waitFor()
    const shown = await pictures.evaluateAll(found => found.map(each => each.getAttribute("data-picture")))
    assert.deepStrictEqual(shown, ["<U+202E>", "<U+200B>"])
  })

  it("asks before an edit is left at once, and not after it is discarded", async () => {
    await client().set("typed", "soon", 1)
    await open("store", "typed", "soon")
    await shows("1")
    // The page renders nothing between the input and the navigation.
    await page.evaluate(`{
      const field = document.querySelector(".editor-box textarea")
      field.value = "2"
      field.dispatchEvent(new Event("input", { bubbles: true }))
      location.hash = "#/feed"
    }`)
    const dialog = page.getByRole("dialog", { name: "Leave without saving?" })
    await dialog.getByRole("button", { name: "Cancel" }).click()
    await shows("2")
    await page.getByRole("dialog").waitFor({ state: "detached" })
    await page.evaluate(`{
      const [discard] = [...document.querySelectorAll("button")].filter(({ textContent }) => textContent === "Discard")
      discard.click()
      location.hash = "#/feed"
    }`)
    await page.getByRole("list", { name: "Changes, newest first" }).waitFor()
  })

  it("asks before a value of the history replaces an edit, and clears the problem of the edit", async () => {
    await client().set("taken", "k", 1)
    await client().set("taken", "k", 2)
    await open("store", "taken", "k")
    await shows("2")
    await editor().fill('{"a" 1}')
    await page.getByRole("button", { name: "Format" }).click()
    const problem = page.getByText(/^Line 1, column /)
    await problem.waitFor()
    const take = async () => {
      await page.getByRole("tab", { name: "History" }).click()
      await page.getByRole("button", { name: /^version 1/ }).click()
      await visit.isFit()
      await page.getByRole("button", { name: "Edit this value" }).click()
    }
    await take()
    const dialog = page.getByRole("dialog", { name: "Replace your changes?" })
    await dialog.getByRole("button", { name: "Cancel" }).click()
    await page.getByRole("tab", { name: "Value" }).click()
    await shows('{"a" 1}')
    await take()
    await dialog.getByRole("button", { name: "Discard changes" }).click()
    await shows("1")
    assert.strictEqual(await problem.count(), 0)
    await page.getByRole("button", { name: "Discard" }).click()
    await shows("2")
    // Without changes there is no question.
    await take()
    await shows("1")
    await page.getByRole("button", { name: "Discard" }).click()
  })

  it("asks before signing out, and stays signed in at the entry if the changes are kept", async () => {
    await client().set("leaving", "a", 1)
    await open("store", "leaving", "a")
    await shows("1")
    await editor().fill("2")
    await visit.signOut()
    const dialog = page.getByRole("dialog", { name: "Leave without saving?" })
    await dialog.getByRole("button", { name: "Cancel" }).click()
    assert.strictEqual(await page.evaluate("location.hash"), "#/store/leaving/a")
    await save()
    await eventually(async () => assert.strictEqual((await client().get("leaving", "a"))?.value, 2))
    await page.reload()
    await shows("2")
    await editor().fill("3")
    await visit.signOut()
    await dialog.getByRole("button", { name: "Discard changes" }).click()
    await page.getByLabel("Key or token").waitFor()
    assert.strictEqual((await client().get("leaving", "a"))?.value, 2)
  })
})
