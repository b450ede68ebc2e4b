/** The console by the keyboard alone, and in a window that is zoomed. */
import type { Page } from "playwright-core"
import { assert, beforeAll, it } from "vitest"
import { makeSessions } from "../../src/exports/client.ts"
import { describeVisit, eventually, getsFocus, hasFocus, violations } from "./Visit.ts"

describeVisit("The console by the keyboard", visit => {
  const { client, isNoWiderThan, open, say, send } = visit
  let page: Page

  beforeAll(async () => {
    page = visit.page
    await visit.serve()
  })

  const press = (key: string) => page.keyboard.press(key)

  const focused = () =>
    page.evaluate<string>(`(element => [element.getAttribute("aria-label"), element.labels?.[0]?.textContent, element.textContent]
      .find(Boolean) ?? "")(document.activeElement)`)

  /** Tabs on until something has the focus. */
  const tabTo = async (name: RegExp, key = "Tab") => {
    const passed: Array<string> = []
    while (!name.test(await focused())) {
      passed.push(await focused())
      assert.isBelow(passed.length, 40, `${name} is not among ${JSON.stringify(passed)}`)
      await press(key)
    }
  }

  /** Waits until what has the focus has a name: lists draw a row that gets it in one of the next frames. */
  const isFocused = (name: RegExp) => eventually(async () => assert.match(await focused(), name))

  it("is used by the keyboard alone, from signing in to an edit, a conflict and an approval", async () => {
    await client().set("keyboard", "entry", { a: 1 }, { actor: "anna" })
    const talks = makeSessions({ baseUrl: visit.base })
    await talks.create("echo", { title: "by keyboard" })
    talks.close()
    await page.goto(`${visit.base}/console`)
    await page.getByLabel("Key or token").waitFor()
    await tabTo(/^Key or token$/)
    await page.keyboard.type("dev-key")
    await press("Enter")
    await page.getByText("reads and writes").waitFor()

    await tabTo(/^Store$/)
    await press("Enter")
    await page.getByRole("link", { name: /^keyboard/ }).waitFor()
    // The first one is the tab of that name.
    await tabTo(/^Namespaces$/)
    await press("Tab")
    await tabTo(/^Namespaces$/)
    await press("ArrowDown")
    await isFocused(/^keyboard/)
    await press("Enter")
    await page.getByRole("link", { name: /^entry/ }).waitFor()
    await tabTo(/^Keys of keyboard$/)
    await press("ArrowDown")
    await isFocused(/^entry/)
    await press("Enter")
    await page.getByText("version 1", { exact: true }).waitFor()
    await tabTo(/^Value$/)
    // The first one is the tab of that name.
    await press("Tab")
    await tabTo(/^Value$/)
    await press("Control+a")
    await page.keyboard.type('{"a": "typed"}')
    await client().set("keyboard", "entry", { a: "theirs" }, { actor: "ben" })
    await page.getByText(/ben changed this entry to version 2/).waitFor()
    await press("Control+s")
    await page.getByRole("dialog").waitFor()
    await tabTo(/^Overwrite version 2$/)
    await press("Enter")
    await page.getByText("Saved as version 3").waitFor()
    // The dialog has given the focus back.
    await isFocused(/^Value$/)
    assert.deepStrictEqual((await client().get("keyboard", "entry"))?.value, { a: "typed" })

    await tabTo(/^Sessions$/, "Shift+Tab")
    await press("Enter")
    await page.getByRole("link", { name: /by keyboard/ }).waitFor()
    await tabTo(/^Sessions, last active first$/)
    await press("ArrowDown")
    await isFocused(/by keyboard/)
    await press("Enter")
    await page.getByLabel("Message").waitFor()
    await tabTo(/^Message$/)
    await page.keyboard.type("/approve")
    await send()
    await page.getByRole("button", { name: "Approve", exact: true }).waitFor()
    const approve = async () => {
      await tabTo(/^ ?Approve$/, "Shift+Tab")
      await press("Enter")
    }
    await visit.attempt(approve, page.getByRole("region", { name: "Approval" }).getByText("Answer: approved"))
  })

  it("chooses tabs by the arrow keys, Home and End, and Tab leads from the chosen one into its panel", async () => {
    await client().set("keys", "entry", { a: 1 }, { actor: "anna" })
    await client().set("keys", "entry", { a: 2 }, { actor: "ben" })
    await open("store", "keys", "entry")
    const entry = page.getByRole("region", { name: "Entry" })
    const tab = (name: string) => entry.getByRole("tab", { name })
    await tab("Value").click()
    const isChosen = async (name: string, key: string) => {
      const states = await entry.getByRole("tab").evaluateAll(tabs =>
        tabs.map(tab => ({
          name: tab.textContent,
          isChosen: tab.getAttribute("aria-selected") === "true",
          isStop: tab.getAttribute("tabindex") === "0",
          isFocused: tab.matches(":focus")
        }))
      )
      // The chosen one has the focus, and is the only one that Tab leads to.
      const found = states.filter(({ isChosen, isFocused, isStop }) => isChosen || isFocused || isStop)
      assert.deepStrictEqual(found, [{ name, isChosen: true, isStop: true, isFocused: true }], key)
    }
    for (const [key, name] of [
      ["ArrowRight", "History"],
      ["ArrowRight", "Value"],
      ["ArrowLeft", "History"],
      ["ArrowLeft", "Value"],
      ["End", "History"],
      ["Home", "Value"],
      ["ArrowDown", "Value"],
      ["Control+End", "Value"]
    ] as const) {
      await press(key)
      await eventually(() => isChosen(name, key))
      await page.getByRole("tabpanel", { name, exact: true }).waitFor()
    }
    const panel = entry.getByRole("tabpanel")
    assert.strictEqual(await tab("Value").getAttribute("aria-controls"), await panel.getAttribute("id"))
    await press("Tab")
    await getsFocus(panel)
  })

  it("goes through the versions of an entry by the arrow keys, and keeps the focus when a version is taken", async () => {
    await page.getByRole("tab", { name: "History" }).click()
    await page.getByRole("button", { name: /^version 2/ }).waitFor()
    await press("Tab")
    await isFocused(/^version 2/)
    await press("ArrowDown")
    await isFocused(/^version 1/)
    await press("ArrowDown")
    await isFocused(/^version 1/)
    await press("Enter")
    await page.getByRole("region", { name: "Before compared with Version 1" }).waitFor()
    await press("Home")
    await isFocused(/^version 2/)
    await press("End")
    await isFocused(/^version 1/)
    await tabTo(/^Edit this value$/)
    await press("Enter")
    await page.getByRole("textbox", { name: "Value" }).waitFor()
    await isFocused(/^Value$/)
    const discard = page.getByRole("button", { name: "Discard" })
    await discard.click()
    // The browser takes the focus from a button that is disabled.
    await eventually(async () => assert.isTrue(await discard.isDisabled()))
  })

  it("keeps the focus in a dialog until Escape closes it, and gives it back", async () => {
    const dialog = page.getByRole("dialog")
    for (const [opener, first] of [
      ["New", "Key"],
      ["Import and export", "Close"],
      ["Delete", "Cancel"]
    ] as const) {
      await page.getByRole("button", { name: opener, exact: true }).focus()
      await isFocused(new RegExp(`^ ?${opener}$`))
      await press("Enter")
      await dialog.waitFor()
      await isFocused(new RegExp(`^${first}$`))
      for (let tabs = 0; tabs < 12; tabs++) {
        await press(tabs < 8 ? "Tab" : "Shift+Tab")
        // Between its last and its first element the browser's own controls have the focus.
        const isBrowser = await page.evaluate("document.activeElement === document.body")
        assert.isTrue(isBrowser || (await hasFocus(dialog)), `${opener}: ${await focused()}`)
      }
      await press("Escape")
      await dialog.waitFor({ state: "detached" })
      await isFocused(new RegExp(`^ ?${opener}$`))
    }
  })

  it("leaves the focus where it was moved between the closing of a dialog and its removal", async () => {
    await page.getByRole("button", { name: "New", exact: true }).focus()
    await press("Enter")
    await isFocused(/^Key$/)
    const other = page.getByRole("button", { name: "Import and export", exact: true })
    await other.evaluate(button => {
      button.ownerDocument.querySelector("dialog")?.close()
      button.focus()
    })
    await page.locator("dialog").waitFor({ state: "detached" })
    assert.isTrue(await hasFocus(other))
  })

  it("keeps the focus where what had it goes: an approval, a file", async () => {
    await open("sessions")
    await page.getByRole("link", { name: /by keyboard/ }).click()
    await say("/approve")
    const approval = page.getByRole("region", { name: "Approval" }).last()
    const deny = async () => {
      await approval.getByRole("button", { name: "Deny" }).focus()
      await press("Enter")
    }
    await visit.attempt(deny, approval.getByText("Answer: denied"))
    await getsFocus(approval)

    await page.getByRole("button", { name: "Interrupt", exact: true }).waitFor({ state: "detached" })
    await say("write it down")
    await page.getByRole("log").getByText("echo: write it down").waitFor()
    await page.getByRole("button", { name: "Files", exact: true }).click()
    const file = page.getByRole("list", { name: "Files of the workspace" }).getByRole("button", { name: /^README.md/ })
    await file.waitFor()
    await tabTo(/^Files of the workspace$/)
    await press("ArrowDown")
    await isFocused(/^README.md/)
    await press("Enter")
    await isFocused(/^All files$/)
    await press("Enter")
    await file.waitFor()
    await isFocused(/^Files of the workspace$/)
    await press("ArrowDown")
    await isFocused(/^README.md/)
  })

  it("fits a window that is zoomed to 200 %, and moves nothing for those who want no motion", async () => {
    await page.emulateMedia({ reducedMotion: "reduce" })
    await page.setViewportSize({ width: 640, height: 400 })
    for (const [view, seen] of [
      [["overview"], page.getByRole("heading", { name: "Everything works" })],
      [["store"], page.getByRole("list", { name: "Namespaces" })],
      [["store", "keys"], page.getByRole("list", { name: "Keys of keys" })],
      [["store", "keys", "entry"], page.getByRole("tab", { name: "Value" })],
      [["feed"], page.getByRole("list", { name: "Changes, newest first" })],
      [["sessions"], page.getByRole("list", { name: "Sessions, last active first" })]
    ] as const) {
      await open(...view)
      await seen.waitFor()
      await isNoWiderThan(640)
      assert.deepStrictEqual(await violations(page), [], view.join("/"))
      assert.strictEqual(await page.evaluate<number>("document.getAnimations().length"), 0)
    }
  })
})
