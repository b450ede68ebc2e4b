/** The console with much data: a session of 50,000 events, 10,000 keys, and a value of 20,000 lines. */
import type { Locator, Page } from "playwright-core"
import { assert, beforeAll, it } from "vitest"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { fill } from "./LongHistory.ts"
import { describeVisit, eventually } from "./Visit.ts"

const events = 50_000
const keys = 10_000

/** The maximum number of elements in the page of a large session. A row has about ten. */
const maxElements = 1500

describeVisit("The console with much data", visit => {
  const { client, editor, nextFrame, open, run, say, shows } = visit
  let page: Page
  let frames = 0

  beforeAll(async () => {
    page = visit.page
    page.on("websocket", socket => socket.on("framereceived", () => frames++))
    const directory = await run(temporaryDirectory)
    const contents = { tenant: "dev", title: "A long talk", events, namespace: "cities", keys }
    const session = await run(fill(directory, contents))
    await visit.serve({ DATA_DIR: directory, SESSION_HISTORY_EVENTS: "1000000" })
    await visit.signIn("dev-key", `${visit.base}/console/#/sessions/${session}`)
  })

  const elements = () => page.evaluate<number>("document.querySelectorAll('*').length")

  const scrollTo = (list: Locator, share: number) =>
    list.evaluate((element, share) => {
      element.scrollTop = share * (element.scrollHeight - element.clientHeight)
    }, share)

  /** Scrolls until an element is rendered. Rows are measured when they come into view, which moves later rows. */
  const scrollsTo = async (list: Locator, share: number, sought: Locator) => {
    for (;;) {
      await scrollTo(list, share)
      if ((await sought.count()) > 0) break
      await nextFrame()
    }
    assert.isBelow(await elements(), maxElements)
  }

  const eventList = () => page.getByRole("list", { name: "Events" })
  const log = () => page.getByRole("log", { name: "Conversation" })
  const last = `answer ${events / 50}, part 36`

  it("opens a session of 50,000 events at its end, with its conversation and the newest events only", async () => {
    await page.getByText(/^the newest (?:250|500) events$/).waitFor()
    await log().getByText(last).waitFor()
    await eventList()
      .getByRole("button", { name: /^50000 turn_completed/ })
      .waitFor()
    assert.isBelow(await elements(), maxElements)
    assert.isBelow(frames, events / 50)
  })

  it("scrolls to the start, the middle and the end of both lists with a bounded number of elements", async () => {
    await scrollsTo(eventList(), 0, eventList().getByRole("button", { name: /^1 turn_started.*question 1"/ }))
    await scrollsTo(eventList(), 0.5, eventList().getByRole("button", { name: /^25000 / }))
    await scrollsTo(eventList(), 1, eventList().getByRole("button", { name: /^50000 / }))
    await scrollsTo(log(), 0, log().getByText("question 1", { exact: true }))
    await scrollsTo(log(), 0.5, log().getByText(/^question (?:4[5-9]|5[0-5])\d$/))
    await scrollsTo(log(), 1, log().getByText(last))
  })

  it("finds events by type and content", async () => {
    const field = page.getByLabel("Search events")
    await field.fill("QUESTION 777")
    // All of them are read for it.
    await page.getByText("1 of 50,000 events").waitFor()
    await eventList()
      .getByRole("button", { name: /^38801 turn_started/ })
      .click()
    await page.getByText('"content": "question 777"').waitFor()
    await eventList()
      .getByRole("button", { name: /^38801 turn_started/ })
      .click()
    await field.fill("turn_completed")
    await page.getByText("1,000 of 50,000 events").waitFor()
    await scrollsTo(eventList(), 1, eventList().getByRole("button", { name: /^50000 turn_completed/ }))
    await field.fill("")
    await page.getByText("50,000 events", { exact: true }).waitFor()
  })

  it("follows the end, unless the user has scrolled up", async () => {
    await scrollsTo(eventList(), 0.5, eventList().getByRole("button", { name: /^25000 / }))
    await scrollsTo(log(), 0.5, log().getByText(/^question (?:4[5-9]|5[0-5])\d$/))
    // Sending a message scrolls to the end.
    await say("/long 60")
    await log().getByText(/59 60/).waitFor()
    await eventList()
      .getByRole("button", { name: /^25000 / })
      .waitFor()
    await say("still there?")
    await log().getByText("echo: still there?").waitFor()
    await scrollsTo(eventList(), 1, eventList().getByRole("button", { name: /turn_completed/ }))
  })

  it("lists 10,000 keys with only the rows in view, while some are written", async () => {
    await open("store", "cities")
    await page.getByText("10,000 entries").waitFor()
    const list = page.getByRole("list", { name: "Keys of cities" })
    const key = (number: number) =>
      list.getByRole("link", { name: new RegExp(`^city-${String(number).padStart(5, "0")}`) })
    await scrollsTo(list, 1, key(keys - 1))
    await scrollsTo(list, 0, key(0))
    await scrollsTo(list, 0.5, key(5000))
    assert.isBelow(await list.getByRole("listitem").count(), 60)
    const operations = Array.from({ length: 1000 }, (_, index) => {
      const set = { op: "set" as const, namespace: "cities", value: index }
      return { ...set, key: `city-${String(5000 + index).padStart(5, "0")}a` }
    })
    await client().batch(operations)
    await page.getByText("11,000 entries").waitFor()
    await list.getByRole("link", { name: /^city-05000a/ }).waitFor()
    await page.getByLabel("Keys that start with").fill("city-0500")
    await page.getByText("20 entries").waitFor()
    await page.getByRole("link", { name: /^city-05009a/ }).waitFor()
  })

  it("edits a value of 20,000 lines, and renders those near the view", async () => {
    const value = Object.fromEntries(Array.from({ length: 20_000 }, (_, index) => [`name ${index}`, index]))
    await client().set("large", "value", value)
    await open("store", "large", "value")
    await shows(/"name 19999": 19999\n\}$/)
    assert.isBelow(await elements(), maxElements)

    await scrollTo(editor(), 1)
    await page.locator(".editor-lines").getByText("20002", { exact: true }).waitFor()
    assert.isBelow(await elements(), maxElements)
    // The number and the value of the last line but one are aligned with the field.
    const lines = () =>
      page.evaluate<ReadonlyArray<number>>(`(() => {
      const field = document.querySelector(".editor-box textarea")
      const top = field.getBoundingClientRect().top + parseFloat(getComputedStyle(field).paddingTop) - field.scrollTop
      const seen = [
        [...document.querySelectorAll(".editor-lines span")].find(({ textContent }) => textContent === "20001"),
        [...document.querySelectorAll(".json-number")].at(-1)
      ]
      return seen.map(element => {
        const { y, height } = element.getBoundingClientRect()
        return Math.floor((y + height / 2 - top) / 20) + 1
      })
    })()`)
    await eventually(async () => assert.deepStrictEqual(await lines(), [20_001, 20_001]))

    await editor().press("Control+End")
    await page.keyboard.type("}")
    await page.keyboard.press("Control+s")
    await page.getByText("Line 20002, column 2: The end of the text is expected").waitFor()
    await page.locator(".editor-lines .bad", { hasText: "20002" }).waitFor()
    await page.keyboard.press("Backspace")
    await page.getByText("Line 20002, column 2").waitFor({ state: "detached" })
  })

  it("accepts 9,000 pasted lines", async () => {
    const numbers = Array.from({ length: 9000 }, (_, index) => index)
    const text = JSON.stringify(numbers, undefined, 2)
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"])
    await page.evaluate(`navigator.clipboard.writeText(${JSON.stringify(text)})`)
    await editor().press("Control+a")
    await editor().press("Control+v")
    await shows(text)
    await page.getByRole("button", { name: "Save" }).click()
    await page.getByText("Saved as version 2").waitFor()
    assert.deepStrictEqual((await client().get("large", "value"))?.value, numbers)
  })
})
