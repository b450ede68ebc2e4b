/** Chats of the AI SDK, unmodified, over both transports. */
import { assert, describe, expect } from "@effect/vitest"
import { lastAssistantMessageIsCompleteWithApprovalResponses as isDecided } from "ai"
import { Effect } from "effect"
import { live } from "../Socket/Fixture.ts"
import { history, open, settled, shown, textOf, transports } from "./Fixture.ts"

describe.each(transports)("a chat over %s", kind => {
  live("sends a message, and has what the history has", function* ({ chats }) {
    const one = yield* open(chats, kind, { id: "chat one" })
    yield* settled(() => one.chat.sendMessage({ text: "hello there" }))
    assert.strictEqual(one.chat.error, undefined)
    assert.strictEqual(one.chat.status, "ready")
    assert.deepStrictEqual(one.texts, ["hello there", "echo: hello there"])
    expect(one.last.parts.map(({ type }) => type)).toEqual(["reasoning", "dynamic-tool", "data-file", "text"])
    expect(one.last.metadata).toMatchObject({ status: "completed", usage: { inputTokens: 103 } })
    yield* settled(() => one.chat.sendMessage({ text: "again" }))
    assert.deepStrictEqual(one.texts.slice(2), ["again", "echo: again"])
    const messages = yield* history(chats, "chat one")
    assert.deepStrictEqual(shown(one.chat.messages), shown(messages))
    assert.deepStrictEqual(yield* history(chats, "never used"), [])
  })

  live("attaches to a message that was sent before, and never runs it again", function* ({ chats }) {
    const messages = [{ id: "m-1", role: "user" as const, parts: [{ type: "text" as const, text: "once" }] }]
    const many = yield* Effect.replicateEffect(open(chats, kind, { id: "c", messages }), 3)
    yield* Effect.forEach(many, ({ chat }) => settled(() => chat.sendMessage()), { concurrency: "unbounded" })
    for (const each of many) {
      assert.strictEqual(each.chat.error, undefined)
      assert.deepStrictEqual(each.texts, ["once", "echo: once"])
    }
    assert.strictEqual((yield* history(chats, "c")).length, 2)
    const other = yield* open(chats, kind, {
      id: "c",
      messages: [{ ...messages[0]!, parts: [{ type: "text", text: "other" }] }]
    })
    yield* settled(() => other.chat.sendMessage())
    expect(other.chat.error?.message).toMatch(/"m-1\\?" was sent with another text/)
    const again = many[0]!
    yield* settled(() => again.chat.regenerate())
    expect(again.chat.error?.message).toMatch(/was answered, and a history is not rewritten/)
  })

  live("sends what was not sent before, in order, and each message once", function* ({ chats }) {
    const message = (id: string) => ({ id, role: "user" as const, parts: [{ type: "text" as const, text: id }] })
    const one = yield* open(chats, kind, { id: "c", messages: [message("a"), message("b")] })
    yield* settled(() => one.chat.sendMessage())
    assert.deepStrictEqual([one.chat.error, textOf(one.last)], [undefined, "echo: b"])
    const both = yield* history(chats, "c")
    assert.deepStrictEqual(both.map(textOf), ["a", "echo: a", "b", "echo: b"])
    const again = yield* open(chats, kind, { id: "c", messages: ["a", "b", "d"].map(message) })
    yield* settled(() => again.chat.sendMessage())
    assert.strictEqual(textOf(again.last), "echo: d")
    assert.deepStrictEqual((yield* history(chats, "c")).slice(4).map(textOf), ["d", "echo: d"])
  })

  live("an error of the agent is the chat's error, and is in the history", function* ({ chats }) {
    const one = yield* open(chats, kind, { id: "c" })
    yield* settled(() => one.chat.sendMessage({ text: "/fail out of tea" }))
    assert.deepStrictEqual([one.chat.status, one.chat.error?.message], ["error", "out of tea"])
    const [, failed] = yield* history(chats, "c")
    expect(failed?.metadata).toMatchObject({ status: "failed", error: { message: "out of tea" } })
    yield* settled(() => one.chat.sendMessage({ text: "hi" }))
    assert.deepStrictEqual([one.chat.status, textOf(one.last)], ["ready", "echo: hi"])
  })

  live("approvals end the stream, and the answer continues the same message", function* ({ chats }) {
    for (const approved of [true, false]) {
      const id = `c-${approved}`
      const one = yield* open(chats, kind, { id, sendAutomaticallyWhen: isDecided })
      yield* settled(() => one.chat.sendMessage({ text: "/approve" }))
      const asked = one.last
      expect(asked.parts).toMatchObject([
        {
          ...{ type: "dynamic-tool", toolName: "run_command", state: "approval-requested" },
          approval: { id: expect.any(String), requestReason: "rm -r build" }
        }
      ])
      const [, open_] = yield* history(chats, id)
      assert.deepStrictEqual(shown([open_!]), shown([asked]))
      const [part] = asked.parts
      assert.isTrue(part?.type === "dynamic-tool" && part.state === "approval-requested")
      const approval = part?.type === "dynamic-tool" ? part.approval : undefined
      yield* settled(async () => one.chat.addToolApprovalResponse({ id: approval!.id, approved, reason: "because" }))
      yield* one.until(({ status }) => status === "ready" && textOf(one.last) !== "")
      assert.strictEqual(one.chat.error, undefined)
      assert.strictEqual(one.chat.messages.length, 2)
      assert.deepStrictEqual([one.last.id, textOf(one.last)], [asked.id, approved ? "approved" : "denied"])
      expect(one.last.parts[0]).toMatchObject({
        state: approved ? "output-available" : "output-denied",
        approval: { approved, reason: "because" }
      })
      const rest = one.last.parts.slice(1)
      const [, stored] = yield* history(chats, id)
      assert.deepStrictEqual(JSON.parse(JSON.stringify(rest)), stored?.parts.slice(1))
    }
  })

  live("an approval is answered although a message that was refused follows it", function* ({ chats }) {
    const one = yield* open(chats, kind, { id: "c" })
    yield* settled(() => one.chat.sendMessage({ text: "/approve" }))
    const [part] = one.last.parts
    const approval = part?.type === "dynamic-tool" ? part.approval : undefined
    yield* settled(() => one.chat.sendMessage({ text: "well?" }))
    expect(one.chat.error?.message).toMatch(/answer it first/)
    yield* settled(async () => one.chat.addToolApprovalResponse({ id: approval!.id, approved: true }))
    yield* settled(() => one.chat.sendMessage())
    assert.strictEqual(one.chat.error, undefined)
    assert.deepStrictEqual(one.texts, ["/approve", "approved", "well?"])
  })

  live("a question is answered by the next message", function* ({ chats }) {
    const one = yield* open(chats, kind, { id: "c" })
    yield* settled(() => one.chat.sendMessage({ text: "/ask" }))
    expect(one.last.parts).toMatchObject([
      { type: "data-question", data: { title: "Which color?", options: ["red", "blue"], status: "pending" } }
    ])
    yield* settled(() => one.chat.sendMessage({ text: "blue" }))
    assert.strictEqual(one.chat.error, undefined)
    assert.deepStrictEqual(one.texts, ["/ask", "", "blue", "answer: blue"])
    const messages = yield* history(chats, "c")
    assert.deepStrictEqual(messages.map(textOf), one.texts)
    assert.strictEqual(messages.at(-1)?.id, one.last.id)
    // The same answer again attaches.
    const late = yield* open(chats, kind, { id: "c", messages: one.chat.messages.slice(0, 3) })
    yield* settled(() => late.chat.sendMessage())
    assert.strictEqual(late.chat.error, undefined)
    assert.deepStrictEqual(late.texts, one.texts)
  })

  live("what the agent does not take is refused by its place", function* ({ chats }) {
    const file = (url: string, mediaType = "image/png") => ({ type: "file" as const, mediaType, url })
    const refused = (place: string) =>
      expect.stringMatching(new RegExp(`${place.replaceAll(/[[\]]/g, "\\$&")}: a part of type .*file.* cannot be sent`))
    for (const each of [
      file("data:image/png;base64,AA=="),
      file("https://causeway.example/cat.png"),
      file("data:application/pdf;base64,AA==", "application/pdf")
    ]) {
      const one = yield* open(chats, kind, { id: "c" })
      yield* settled(() => one.chat.sendMessage({ text: "look", files: [each] }))
      expect(one.chat.error?.message).toEqual(refused("messages[0].parts[0]"))
      // The message stays at the client, which sends it again with the next one.
      yield* settled(() => one.chat.sendMessage({ text: "again" }))
      expect(one.chat.error?.message).toEqual(refused("messages[0].parts[0]"))
      const parts = [{ type: "text" as const, text: "again" }, each]
      one.chat.messages = []
      yield* settled(() => one.chat.sendMessage({ role: "user", parts }))
      expect(one.chat.error?.message).toEqual(refused("messages[0].parts[1]"))
    }
    assert.deepStrictEqual(yield* history(chats, "c"), [])
  })
})
