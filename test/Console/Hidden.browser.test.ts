/** What agents, tools and terminals say in the console, with characters that are not seen. */
import type { Locator, Page } from "playwright-core"
import { assert, beforeAll, it } from "vitest"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { type Body, fillSession } from "./LongHistory.ts"
import { describeVisit, eventually } from "./Visit.ts"

/** It looks like `run annexe.txt` if its last characters are written from right to left. */
const disguised = "run ann\u202etxt.exe"
const revealed = "run ann<U+202E>txt.exe"

const turnId = "turn-1"

const bodies: ReadonlyArray<Body> = [
  { type: "turn_started", turnId, content: "Say it\u200b all", sub: "anna" },
  { type: "thinking_delta", turnId, thinkingId: "h", text: "so \u2066hm" },
  { type: "thinking_end", turnId, thinkingId: "h" },
  { type: "tool_call", turnId, callId: "c", name: "sh\u200bell", args: { command: disguised } },
  { type: "tool_progress", turnId, callId: "c", message: "half\u202e way" },
  { type: "terminal_opened", turnId, terminalId: "t", command: "ls\u001b[8m -l" },
  {
    type: "terminal_output",
    turnId,
    terminalId: "t",
    stream: "stdout",
    text: "\u001b[31mred\u001b[39m\r\nshown\rover\n"
  },
  { type: "file_changed", turnId, change: "created", path: "\u202egnp.exe" },
  {
    type: "text_delta",
    turnId,
    messageId: "m",
    text: "Done\u202e.\n```sh\nls \u2067#\n```\n\ud83d\udc69\u200d\ud83d\udcbb \u2764\ufe0f \u0645\u06cc\u200c\u062e \u05e9\u05dc\u05d5\u05dd"
  },
  { type: "text_end", turnId, messageId: "m" },
  { type: "approval_requested", turnId, requestId: "a", action: disguised, description: "rm\u2067 -r\u0000 b" }
]

describeVisit("Hidden characters of agents in the console", visit => {
  let page: Page

  beforeAll(async () => {
    page = visit.page
    const directory = await visit.run(temporaryDirectory)
    const session = await visit.run(fillSession(directory, { tenant: "dev", title: "A talk" }, bodies))
    await visit.serve({ DATA_DIR: directory })
    await visit.signIn("dev-key", `${visit.base}/console/#/sessions/${session}`)
    await page.context().grantPermissions(["clipboard-read", "clipboard-write"])
  })

  const log = () => page.getByRole("log", { name: "Conversation" })
  const approval = () => log().getByRole("region", { name: "Approval" })

  /** The text of an element as it is seen, with the pictures of hidden characters. */
  const seen = (element: Locator): Promise<string> =>
    element.evaluate((found): string => {
      const copy = found.cloneNode(true)
      for (const hidden of copy.querySelectorAll(".hidden-character")) hidden.replaceWith(hidden.dataset.picture)
      return copy.textContent
    })

  const isSeen = (element: Locator, text: string) =>
    eventually(async () => assert.strictEqual(await seen(element), text))

  const copied = async (element: Locator): Promise<string> => {
    await element.evaluate(found => found.ownerDocument.getSelection().selectAllChildren(found))
    await page.keyboard.press("Control+c")
    return page.evaluate<string>("navigator.clipboard.readText()")
  }

  it("are seen in a request for approval, and change no direction", async () => {
    const title = approval().getByRole("heading")
    await isSeen(title, revealed)
    await isSeen(approval().locator("pre"), "rm<U+2067> -r␀ b")
    const [first, last] = await title.evaluate(
      (found): ReadonlyArray<number> =>
        ["t", "exe"].map(part => {
          const range = found.ownerDocument.createRange()
          const at = found.lastChild.data.indexOf(part)
          range.setStart(found.lastChild, at)
          range.setEnd(found.lastChild, at + 1)
          return range.getBoundingClientRect().x
        })
    )
    assert.isBelow(first!, last!)
    assert.strictEqual(await title.locator(".hidden-character").getAttribute("data-picture"), "<U+202E>")
    await visit.isFit()
  })

  it("are copied as they are", async () => {
    assert.strictEqual(await copied(approval().getByRole("heading")), disguised)
    // The browser leaves out the last line feed.
    assert.strictEqual(await copied(log().locator(".terminal pre")), "\u001b[31mred\u001b[39m\nshown\rover")
  })

  it("are seen in messages, thoughts, calls of tools, terminals and files", async () => {
    await isSeen(log().locator(".user .prose"), "Say it<U+200B> all")
    await log().getByRole("button", { name: "Thought so <U+2066>hm" }).click()
    await isSeen(log().locator(".fold-body .prose"), "so <U+2066>hm")
    await log().getByRole("button", { name: "sh<U+200B>ell half<U+202E> way" }).click()
    await isSeen(log().locator(".fold-body pre"), `{\n  "command": "${revealed}"\n}`)
    await isSeen(log().locator(".terminal code"), "$ ls␛[8m -l")
    await isSeen(log().locator(".terminal pre"), "␛[31mred␛[39m\nshown␍over\n")
    await isSeen(log().locator(".notice"), "File created <U+202E>gnp.exe")
    await isSeen(log().locator(".agent .prose p").first(), "Done<U+202E>.")
    await isSeen(log().locator(".agent .prose pre"), "ls <U+2067>#\n")
  })

  it("stay as they are where emoji and scripts need them", async () => {
    const last = log().locator(".agent .prose p").last()
    await isSeen(last, "\ud83d\udc69\u200d\ud83d\udcbb \u2764\ufe0f \u0645\u06cc\u200c\u062e \u05e9\u05dc\u05d5\u05dd")
    assert.strictEqual(await last.locator(".hidden-character").count(), 0)
  })

  it("are seen in files and in the changes between their iterations", async () => {
    await page.getByRole("region", { name: "Approval" }).waitFor()
    await visit.open("sessions")
    await page.getByRole("button", { name: "New" }).click()
    await visit.create()
    const name = "a\u202etxt.sh"
    for (const content of ["one\u200b", "two\u2066"]) {
      await page.getByRole("button", { name: "Interrupt", exact: true }).waitFor({ state: "detached" })
      await visit.say(`/write ${name} ${content}`)
      await log().getByText(content).first().waitFor()
    }
    await page.getByRole("button", { name: "Files", exact: true }).click()
    const files = page.getByRole("region", { name: "Files" })
    await files.getByRole("button", { name: "a<U+202E>txt.sh" }).click()
    await isSeen(files.locator("pre"), "two<U+2066>")
    assert.strictEqual(await copied(files.locator("pre")), "two\u2066")
    await files.getByRole("button", { name: "Changes" }).click()
    await isSeen(files.locator("td.removed"), "one<U+200B>")
    await isSeen(files.locator("td.added"), "two<U+2066>")
    await visit.isFit()
    await files.getByLabel("Iteration", { exact: true }).selectOption({ index: 1 })
    await isSeen(files.locator("td.added"), "one<U+200B>")
  })
})
