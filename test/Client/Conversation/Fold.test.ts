/** What the events of a session become in its conversation. */
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import type { AgentMessage, Conversation, Part } from "../../../src/Client/Conversation/Conversation.ts"
import * as Fold from "../../../src/Client/Conversation/Fold.ts"
import type { EventBody, SessionEvent } from "../../../src/Client/SessionModel.ts"
import { allBodies } from "../../../src/Gateway/Protocol/Examples.ts"
import { times } from "../../Scale.ts"
import { anyEvents, numbered, usualEvents } from "./Sessions.ts"

const foldAll = (
  events: ReadonlyArray<SessionEvent>,
  from = Fold.empty("e"),
  limits: Fold.Limits = Fold.limits
): Conversation => {
  const fold = Fold.resume(from, limits)
  for (const event of events) Fold.add(fold, event)
  return fold.conversation
}

const conversationOf = (...bodies: ReadonlyArray<EventBody>): Conversation => foldAll(numbered(bodies))

const stored = <A>(value: A): A => JSON.parse(JSON.stringify(value)) as A

const partsOf = ({ messages }: Conversation): ReadonlyArray<Part> =>
  messages.flatMap(message => (message.role === "agent" ? message.parts : []))

const agentMessage = ({ messages }: Conversation): AgentMessage =>
  messages.find(({ role }) => role === "agent") as AgentMessage

const turn = { turnId: "t1" } as const
const started: EventBody = { type: "turn_started", ...turn, content: "hi", sub: "anna", clientMessageId: "m" }

describe("Fold", () => {
  const small = { all: 1500, text: 6, output: 4 }

  it.each([
    ["any events", anyEvents, Fold.limits],
    ["usual turns", usualEvents, Fold.limits],
    ["any events, too many", anyEvents, small],
    ["usual turns, too many", usualEvents, small]
  ])(
    "of the first events and then of the rest equals the fold of all, wherever it is cut: %s",
    (_, sessions, limits) => {
      fc.assert(
        fc.property(sessions, events => {
          const whole = foldAll(events, Fold.empty("e"), limits)
          assert.deepStrictEqual(stored(whole), whole, "it is JSON")
          for (let cut = 0; cut <= events.length; cut++) {
            const checkpoint = stored(foldAll(events.slice(0, cut), Fold.empty("e"), limits))
            // An event that is read again changes nothing.
            const rest = events.slice(Math.max(0, cut - 2))
            assert.deepStrictEqual(foldAll(rest, checkpoint, limits), whole)
          }
        }),
        { numRuns: times(200) }
      )
    }
  )

  it("has the same size at an event, whether it has seen the events before or resumes there", () => {
    const step: EventBody = { type: "step_started", stepId: "1", title: "Read" }
    for (const bodies of [
      [step, step],
      [step, { type: "step_completed", stepId: "1" } as const]
    ]) {
      const fold = Fold.resume(Fold.empty("e"))
      for (const event of numbered(bodies)) Fold.add(fold, event)
      assert.strictEqual(fold.size, Fold.resume(stored(fold.conversation)).size)
    }
  })

  it("counts what is in progress and what waits for a person", () => {
    fc.assert(
      fc.property(anyEvents, events => {
        const conversation = foldAll(events)
        const running = conversation.messages.flatMap(message =>
          message.role === "agent" && message.status === "running" ? [message.turnId] : []
        )
        assert.sameMembers([...conversation.turns], running)
        const waiting = partsOf(conversation).flatMap(part =>
          (part.type === "question" || part.type === "approval") && part.status === "pending" ? [part.requestId] : []
        )
        assert.sameMembers([...conversation.waiting], waiting)
      }),
      { numRuns: times(400) }
    )
  })

  it("has a part or a member for every type of event but those of the agent's own state", () => {
    for (const body of allBodies as ReadonlyArray<EventBody>) {
      const before = conversationOf(started)
      const after = conversationOf(started, body)
      const isSilent = ["state_snapshot", "state_delta", "session_state", "question_resolved", "approval_resolved"]
      const isSame = JSON.stringify({ ...before, seq: 0 }) === JSON.stringify({ ...after, seq: 0 })
      assert.strictEqual(isSame, isSilent.includes(body.type), body.type)
    }
  })

  it("ignores events of types that it does not know, and of names that objects have", () => {
    for (const type of ["sung", "constructor", "__proto__"]) {
      const conversation = conversationOf(started, { type, song: 1 } as never)
      assert.deepStrictEqual({ ...conversation, seq: 1 }, conversationOf(started))
    }
  })

  it("joins the deltas of texts, thoughts and tool calls", () => {
    const conversation = conversationOf(
      started,
      { type: "thinking_start", thinkingId: "1" },
      { type: "thinking_delta", thinkingId: "1", text: "so " },
      { type: "tool_call_start", callId: "c", name: "read" },
      { type: "text_start", messageId: "1" },
      { type: "thinking_delta", thinkingId: "1", text: "so" },
      { type: "text_delta", messageId: "1", text: "a" },
      { type: "tool_call_delta", callId: "c", text: '{"a":' },
      { type: "text_delta", messageId: "1", text: "b" },
      { type: "tool_call_delta", callId: "c", text: "1}" },
      { type: "thinking_end", thinkingId: "1" },
      { type: "text_end", messageId: "1", text: "abc" },
      { type: "tool_result", callId: "c", result: { ok: true } }
    )
    assert.deepStrictEqual(conversation.messages, [
      { role: "user", seq: 1, timestamp: 10, turnId: "t1", text: "hi", sub: "anna", clientMessageId: "m" },
      {
        ...{ role: "agent", seq: 1, timestamp: 10, lastSeq: 13, turnId: "t1", status: "running" },
        parts: [
          { type: "reasoning", seq: 2, timestamp: 20, id: "1", text: "so so" },
          { type: "tool", seq: 4, timestamp: 40, callId: "c", name: "read", argsText: '{"a":1}', result: { ok: true } },
          { type: "text", seq: 5, timestamp: 50, id: "1", text: "abc" }
        ]
      }
    ])
    assert.deepStrictEqual(conversation.turns, ["t1"])
  })

  it("keeps the arguments of a call once, as a value", () => {
    const call = { callId: "c" }
    const written = [
      { type: "tool_call_start", ...call, name: "read" },
      { type: "tool_call_delta", ...call, text: "{}" }
    ] as const
    const [withArgs] = partsOf(conversationOf(...written, { type: "tool_call", ...call, name: "read", args: null }))
    assert.deepInclude(withArgs, { args: null })
    assert.notProperty(withArgs, "argsText")
    const [without] = partsOf(conversationOf(...written, { type: "tool_call", ...call, name: "read" }))
    assert.deepInclude(without, { argsText: "{}" })
  })

  it("begins a new part for an id that comes again, and for a text without an id after another part", () => {
    const conversation = conversationOf(
      { type: "text_delta", messageId: "1", text: "a" },
      { type: "text_end", messageId: "1" },
      { type: "text_delta", messageId: "1", text: "b" },
      { type: "text_delta", text: "c" },
      { type: "text_delta", text: "d" },
      { type: "file_changed", change: "created", path: "x" },
      { type: "text_delta", text: "e" }
    )
    const texts = partsOf(conversation).map(part => (part.type === "text" ? part.text : part.type))
    assert.deepStrictEqual(texts, ["a", "b", "cd", "file", "e"])
  })

  it("keeps the events of turns apart that run at the same time", () => {
    const other = { turnId: "t2" } as const
    const conversation = conversationOf(
      started,
      { type: "turn_started", ...other },
      { type: "text_delta", ...turn, messageId: "1", text: "one" },
      { type: "text_delta", ...other, messageId: "2", text: "two" },
      { type: "text_delta", messageId: "3", text: "newest" },
      { type: "turn_completed", ...other },
      { type: "text_delta", ...turn, messageId: "1", text: "!" }
    )
    const texts = conversation.messages.map(message =>
      message.role === "user" ? message.text : message.parts.map(part => (part.type === "text" ? part.text : ""))
    )
    assert.deepStrictEqual(texts, ["hi", ["one!"], ["two", "newest"]])
    assert.deepStrictEqual(conversation.turns, ["t1"])
  })

  it("waits for a person until the request is answered or its turn ends", () => {
    const asked = [
      started,
      { type: "question_requested", ...turn, requestId: "q", question: "Tea?", options: ["yes", "no"] },
      { type: "approval_requested", ...turn, requestId: "a", action: "write", details: { path: "x" } }
    ] as const
    assert.deepStrictEqual(conversationOf(...asked).waiting, ["q", "a"])
    const answered = conversationOf(
      ...asked,
      { type: "question_resolved", ...turn, requestId: "q", answer: "yes" },
      { type: "approval_resolved", ...turn, requestId: "a", approved: false, reason: "no" },
      { type: "approval_resolved", ...turn, requestId: "a", approved: true }
    )
    assert.deepStrictEqual(answered.waiting, [])
    const [question, approval] = partsOf(answered)
    assert.deepInclude(question, { title: "Tea?", options: ["yes", "no"], status: "answered", answer: "yes" })
    assert.deepInclude(approval, { title: "write", status: "answered", approved: false, reason: "no" })
    const ended = conversationOf(...asked, { type: "turn_interrupted", ...turn, reason: "enough" })
    assert.deepStrictEqual([ended.waiting, ended.turns], [[], []])
    assert.deepStrictEqual(
      partsOf(ended).map(part => "status" in part && part.status),
      ["expired", "expired"]
    )
    assert.deepInclude(agentMessage(ended), { status: "interrupted", reason: "enough" })
  })

  it("completes what is open when its turn ends, and says why a turn failed", () => {
    const conversation = conversationOf(
      started,
      { type: "text_start", ...turn, messageId: "1" },
      { type: "tool_call_start", ...turn, callId: "c", name: "read" },
      { type: "terminal_opened", ...turn, terminalId: "x", command: "make" },
      { type: "terminal_output", ...turn, terminalId: "x", text: "ok\n" },
      { type: "step_started", ...turn, stepId: "s", title: "Build" },
      { type: "turn_errored", ...turn, code: "failed", message: "It failed", retryable: true }
    )
    assert.isFalse(partsOf(conversation).some(part => "inProgress" in part))
    assert.deepInclude(agentMessage(conversation), {
      status: "failed",
      error: { code: "failed", message: "It failed", retryable: true }
    })
  })

  it("adds up the usage of each turn, and keeps the end of a terminal's output", () => {
    const conversation = conversationOf(
      started,
      { type: "usage_update", inputTokens: 1, costUsd: 0.5, model: "a" },
      { type: "usage_update", inputTokens: 2, outputTokens: 3 },
      { type: "usage_context", used: 1, limit: 4, percent: 25 },
      { type: "terminal_opened", terminalId: "x" },
      ...Array.from(
        { length: 40 },
        () => ({ type: "terminal_output", terminalId: "x", text: "x".repeat(9999) }) as const
      ),
      { type: "terminal_output", terminalId: "x", text: "end" },
      { type: "terminal_exited", terminalId: "x", exitCode: 0 }
    )
    const { usage } = agentMessage(conversation)
    assert.deepStrictEqual(usage, { inputTokens: 3, outputTokens: 3, costUsd: 0.5, model: "a" })
    assert.deepStrictEqual(conversation.context, { used: 1, limit: 4, percent: 25 })
    const [terminal] = partsOf(conversation)
    assert.isTrue(terminal?.type === "terminal" && terminal.output.endsWith("xend"))
    assert.isTrue(terminal?.type === "terminal" && terminal.output.length <= Fold.limits.output * 1.5)
  })

  it("keeps the newest messages, and the newest parts of a turn in progress, within its limit", () => {
    const text = (turnId: string, id: number): EventBody => ({
      ...{ type: "text_delta", turnId, messageId: String(id) },
      text: "x".repeat(1000)
    })
    const turns = Array.from({ length: 20 }, (_, index): ReadonlyArray<EventBody> => {
      const turnId = `t${index}`
      return [{ type: "turn_started", turnId, content: "hi" }, text(turnId, index), { type: "turn_completed", turnId }]
    })
    const limits = { ...Fold.limits, all: 10_000 }
    const ended = foldAll(numbered(turns.flat()), Fold.empty("e"), limits)
    assert.isBelow(JSON.stringify(ended).length, 12_500)
    assert.strictEqual(ended.messages.at(-1)?.seq, 58)
    assert.isAbove(ended.trimmedSeq, 30)
    const long = [started, ...Array.from({ length: 50 }, (_, index) => text("t1", index))]
    const running = foldAll(numbered(long), Fold.empty("e"), limits)
    assert.isBelow(JSON.stringify(running).length, 12_500)
    assert.deepStrictEqual([running.turns, partsOf(running).at(-1)?.seq], [["t1"], 51])
  })

  it("drops the messages of which no event is kept, and continues a turn whose start is not kept", () => {
    const events = numbered([
      started,
      { type: "text_delta", ...turn, messageId: "1", text: "a" },
      { type: "turn_completed", ...turn },
      { type: "turn_started", turnId: "t2", content: "again" },
      { type: "text_delta", turnId: "t2", messageId: "2", text: "b" },
      { type: "text_delta", turnId: "t2", messageId: "2", text: "c" }
    ])
    const fold = Fold.resume(foldAll(events))
    Fold.trim(fold, 3)
    assert.deepStrictEqual(fold.conversation, foldAll(events.slice(3), Fold.empty("e", 3)))
    const late = foldAll(events.slice(5), Fold.empty("e", 5))
    assert.deepStrictEqual(late.turns, ["t2"])
    assert.deepInclude(partsOf(late)[0], { text: "c" })
  })
})
