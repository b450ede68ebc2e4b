/** What the events of a session become in the console. */
import { assert, describe, it } from "@effect/vitest"
import { Conversation } from "../../src/Console/Sessions/Conversation.ts"
import { type EventBody, Fold, type SessionEvent } from "../../src/exports/client.ts"
import { allBodies } from "../../src/Gateway/Protocol/Examples.ts"

const conversationOf = (bodies: ReadonlyArray<EventBody>): Conversation => {
  const conversation = new Conversation()
  bodies.forEach((body, index) => {
    const envelope = { sessionId: "s", seq: index + 1, timestamp: index, traceId: "t" }
    conversation.add({ ...envelope, ...body } as SessionEvent)
  })
  return conversation
}

const turn = { turnId: "turn-1" }

describe("Conversation", () => {
  it("takes every type of event of the protocol, and those that it does not know", () => {
    const conversation = conversationOf([
      ...(allBodies as ReadonlyArray<EventBody>),
      { type: "sung", song: 1 } as never
    ])
    assert.isAbove(conversation.items.length, 10)
  })

  it("shows messages, thoughts, tool calls and why a turn failed, in their order, and the usage of all", () => {
    const { items, usage } = conversationOf([
      { type: "turn_started", ...turn, content: "hi", sub: "anna" },
      { type: "thinking_start", thinkingId: "1" },
      { type: "thinking_delta", thinkingId: "1", text: "so so" },
      { type: "tool_call_start", callId: "c", name: "read" },
      { type: "text_start", messageId: "1" },
      { type: "tool_call_delta", callId: "c", text: '{"a":1}' },
      { type: "thinking_end", thinkingId: "1" },
      { type: "text_end", messageId: "1", text: "abc" },
      { type: "tool_result", callId: "c", result: { ok: true } },
      { type: "usage_update", inputTokens: 10, outputTokens: 1, costUsd: 0.5, model: "m" },
      { type: "turn_errored", ...turn, code: "x", message: "y", retryable: false },
      { type: "usage_update", inputTokens: 5, outputTokens: 2 },
      { type: "usage_context", used: 2, limit: 4, percent: 50 }
    ])
    const context = { used: 2, limit: 4, percent: 50 }
    assert.deepStrictEqual(usage, { input: 15, output: 3, cost: 0.5, model: "m", context })
    assert.deepStrictEqual(items as ReadonlyArray<unknown>, [
      { seq: 1, at: 0, kind: "user", text: "hi", by: "anna" },
      { seq: 2, at: 1, kind: "thought", text: "so so", isDone: true },
      {
        seq: 4,
        at: 3,
        kind: "tool",
        name: "read",
        args: '{"a":1}',
        progress: "",
        outcome: { isError: false, text: '{\n  "ok": true\n}' }
      },
      { seq: 5, at: 4, kind: "text", text: "abc", isDone: true },
      { seq: 12, at: 0, kind: "notice", tone: "bad", title: "The turn failed", text: "y (x)" }
    ])
  })

  it("has one question that a message answers: the only open request", () => {
    const asked: EventBody = { type: "question_requested", requestId: "q", question: "Which?" }
    const wanted: EventBody = { type: "approval_requested", requestId: "p", action: "run" }
    const questionAfter = (...events: ReadonlyArray<EventBody>) =>
      conversationOf([{ type: "turn_started", ...turn }, ...events]).question?.requestId
    assert.isUndefined(questionAfter())
    assert.strictEqual(questionAfter(asked), "q")
    assert.isUndefined(questionAfter(wanted))
    assert.isUndefined(questionAfter(asked, wanted))
    assert.isUndefined(questionAfter(asked, { ...asked, requestId: "r" }))
    assert.strictEqual(questionAfter(asked, wanted, { type: "approval_resolved", requestId: "p", approved: true }), "q")
    assert.isUndefined(questionAfter(asked, { type: "question_resolved", requestId: "q", answer: "a" }))
  })

  it("continues a conversation that was folded elsewhere", () => {
    const bodies = allBodies as ReadonlyArray<EventBody>
    const numbered = bodies.map((body, seq) => ({
      sessionId: "s",
      seq: seq + 1,
      timestamp: seq,
      traceId: "t",
      ...body
    }))
    for (const cut of [0, 10, 20, 30, bodies.length]) {
      const fold = Fold.resume(Fold.empty("e"))
      for (const event of numbered.slice(0, cut)) Fold.add(fold, event as SessionEvent)
      const conversation = new Conversation(JSON.parse(JSON.stringify(fold.conversation)))
      for (const event of numbered.slice(cut)) conversation.add(event as SessionEvent)
      const whole = conversationOf(bodies)
      assert.deepStrictEqual(conversation.items, whole.items)
      assert.deepStrictEqual(conversation.changedFiles, whole.changedFiles)
      assert.deepStrictEqual(conversation.usage, whole.usage)
    }
  })

  it("remembers the last change of a bounded number of files", () => {
    const changed = (count: number) =>
      Array.from({ length: count }, (_, i): EventBody => ({ type: "file_changed", change: "modified", path: `${i}` }))
    const { changedFiles, fileChanges } = conversationOf([
      ...changed(10_000),
      { type: "file_changed", change: "deleted", path: "0" },
      { type: "file_changed", change: "renamed", path: "new", previousPath: "2" }
    ])
    assert.strictEqual(changedFiles.size, 10_000)
    assert.strictEqual(fileChanges, 10_003)
    assert.deepStrictEqual(
      ["0", "1", "2", "new"].map(path => changedFiles.get(path)),
      ["deleted", undefined, "deleted", "renamed"]
    )
  })
})
