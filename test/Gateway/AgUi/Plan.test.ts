/** What a run requires, by what the thread has. */
import { assert, describe, expect, it } from "@effect/vitest"
import * as Messages from "../../../src/AgUi/Messages.ts"
import type { Conversation } from "../../../src/Client/Conversation/Conversation.ts"
import * as Fold from "../../../src/Client/Conversation/Fold.ts"
import type { EventBody } from "../../../src/Client/SessionModel.ts"
import type { RunAgentInput } from "../../../src/Gateway/AgUi/Input.ts"
import { inputOf, type Known, planOf } from "../../../src/Gateway/AgUi/Plan.ts"
import * as Runs from "../../../src/Gateway/AgUi/Runs.ts"
import { waitingIn } from "../../../src/Gateway/Streams/Inquiries.ts"
import { numbered } from "../../Client/Conversation/Sessions.ts"

const run = { threadId: "thread", runId: "run" }

const turn = { turnId: "t1" } as const

const conversationOf = (...bodies: ReadonlyArray<EventBody>): Conversation => {
  const fold = Fold.resume(Fold.empty("0123456789abcdef"))
  for (const event of numbered(bodies)) Fold.add(fold, event)
  return fold.conversation
}

const user = (id: string, content: unknown = "hi") => ({ id, role: "user", content }) as const

const plan = (
  conversation: Conversation,
  input: Partial<RunAgentInput>,
  { answered = new Set(), run: known }: Partial<Known> = {}
) => {
  const made = planOf({ ...run, messages: [], ...input }, { conversation, answered, run: known })
  if (made.is !== "refused") return made
  return { ...made, is: made.error._tag === "BadRequest" ? ("invalid" as const) : ("conflict" as const) }
}

const started: EventBody = { type: "turn_started", ...turn, content: "hi", clientMessageId: "m1" }
const said: ReadonlyArray<EventBody> = [
  { type: "text_delta", ...turn, messageId: "1", text: "hello" },
  { type: "text_end", ...turn, messageId: "1" }
]
const ended: EventBody = { type: "turn_completed", ...turn }
const answered = conversationOf(started, ...said, ended)

const ids = (conversation: Conversation) => Messages.messagesOf(conversation).map(({ id }) => id)

describe("The plan of a run", () => {
  it("is a turn for a new message, whatever its place", () => {
    const [, reply] = ids(answered)
    const known = { id: reply!, role: "assistant", content: "hello" } as const
    for (const messages of [
      [user("m1"), known, user("m2", "next")],
      [user("m2", "next"), user("m1"), known],
      [user("m2", [{ type: "text", text: "next" }])]
    ]) {
      expect(plan(answered, { messages })).toMatchObject({ is: "send", clientMessageId: "m2", content: "next" })
    }
    const all = [user("m1"), user("m2", "next")]
    assert.strictEqual(plan(answered, { messages: all, resume: [] }).is, "send")
    assert.strictEqual(plan(answered, { messages: [user("m1")] }).is, "invalid")
    assert.strictEqual(plan(answered, { messages: [user("m1", "other")] }).is, "conflict")
    assert.strictEqual(plan(answered, { messages: [user(reply!, "hello")] }).is, "conflict")
  })

  it("takes no message of a lost part of the history for a new one", () => {
    const messages = [
      user("old"),
      { id: "fedcba98-7", role: "assistant", content: "?" } as const,
      user("fedcba98-8"),
      user("m1")
    ]
    const trimmed = Fold.resume(structuredClone(answered))
    Fold.trim(trimmed, 1)
    assert.strictEqual(plan(trimmed.conversation, { messages }).is, "send")
    assert.strictEqual(plan(trimmed.conversation, { messages: messages.slice(0, 3) }).is, "invalid")
  })

  it("sends a message again that has not reached the agent, and no other", () => {
    const failed = (code: string) =>
      conversationOf(started, { type: "turn_errored", ...turn, code, message: "no", retryable: true })
    assert.strictEqual(plan(failed("not_sent"), { messages: [user("m1")] }).is, "send")
    assert.strictEqual(plan(failed("delivery_unknown"), { messages: [user("m1")] }).is, "invalid")
    const again = conversationOf(
      started,
      { type: "turn_errored", ...turn, code: "not_sent", message: "no", retryable: true },
      { type: "turn_started", turnId: "t2", content: "hi", clientMessageId: "m1" }
    )
    assert.deepStrictEqual(ids(again), ["m1"])
  })

  const asked = conversationOf(
    started,
    { type: "question_requested", ...turn, requestId: "q", question: "Tea?" },
    { type: "approval_requested", ...turn, requestId: "a", action: "write", description: "x" }
  )
  const seqs = (conversation: Conversation, ...requestIds: ReadonlyArray<string>): ReadonlySet<number> =>
    new Set(
      waitingIn(conversation)
        .filter(({ requestId }) => requestIds.includes(requestId))
        .map(({ seq }) => seq)
    )
  const resolved = (interruptId: string, payload: unknown = true) =>
    ({ interruptId, status: "resolved", payload }) as const

  it("answers all that are asked", () => {
    expect(plan(asked, { resume: [resolved("a"), { interruptId: "q", status: "cancelled" }] })).toMatchObject({
      is: "answer",
      target: { turnId: "t1" },
      replies: [
        { requestId: "a", answer: true },
        { requestId: "q", answer: null }
      ]
    })
    expect(plan(asked, { resume: [{ interruptId: "a", status: "cancelled" }, resolved("q")] })).toMatchObject({
      replies: [{ answer: { approved: false, reason: "cancelled" } }, { answer: true }]
    })
    // The client may not know of the second one.
    assert.strictEqual(plan(asked, { resume: [resolved("q")] }).is, "answer")
    assert.strictEqual(plan(asked, { resume: [resolved("a")] }).is, "conflict")
    assert.strictEqual(plan(asked, { resume: [resolved("a")] }, { answered: seqs(asked, "q") }).is, "answer")
    assert.strictEqual(plan(asked, { resume: [resolved("a"), resolved("a")] }).is, "invalid")
    assert.strictEqual(plan(asked, { resume: [resolved("z")] }).is, "conflict")
    assert.strictEqual(plan(asked, { resume: [resolved("a")], messages: [user("m2")] }).is, "invalid")
    assert.strictEqual(plan(asked, { messages: [user("m2")] }).is, "conflict")
    assert.strictEqual(plan(asked, { messages: [user("m2")] }, { answered: seqs(asked, "q", "a") }).is, "send")
  })

  it("is the turn of a known run, which has one content", () => {
    const first = plan(conversationOf(), { messages: [user("m1")] })
    assert.isTrue(first.is === "send")
    const known = { digest: first.is === "send" ? first.run!.digest : "", turnId: "t1" }
    for (const messages of [[], [user("m1")]]) {
      assert.deepStrictEqual(plan(answered, { messages }, { run: known }), { is: "attach", target: { turnId: "t1" } })
    }
    assert.strictEqual(plan(answered, { messages: [user("m2")] }, { run: known }).is, "conflict")
    assert.strictEqual(plan(asked, { resume: [resolved("q")] }, { run: known }).is, "conflict")
    // Its message was not recorded before a crash.
    expect(plan(conversationOf(), {}, { run: known })).toMatchObject({ is: "invalid" })
    assert.strictEqual(plan(conversationOf(), { messages: [user("m1")] }, { run: known }).is, "send")
  })

  const called = [started, { type: "tool_call", ...turn, callId: "c", name: "color", args: {} }, ended] as const

  it("gives the results of the client's tools to the agent", () => {
    const conversation = conversationOf(...called)
    expect(Runs.endOf(run, conversation, new Messages.Names(conversation.epoch), "t1")).toMatchObject({
      outcome: { type: "success", pendingToolCallIds: ["c"] }
    })
    const result = { id: "r1", role: "tool", toolCallId: "c", content: "red" } as const
    const sent = plan(conversation, { messages: [user("m1"), result] })
    assert.isTrue(sent.is === "send")
    const { content, key = "" } = sent.is === "send" ? sent : { content: "" }
    assert.deepStrictEqual(JSON.parse(content), [{ id: "r1", toolCallId: "c", content: "red" }])
    const after = conversationOf(...called, {
      ...{ type: "turn_started", turnId: "t2", content, clientMessageId: key }
    })
    expect(Messages.messagesOf(after).at(-1)).toEqual(result)
    assert.strictEqual(plan(after, { messages: [user("m1"), result] }).is, "invalid")
    assert.strictEqual(plan(after, { messages: [{ ...result, id: "r2" }] }).is, "conflict")
    assert.strictEqual(plan(conversation, { messages: [{ ...result, toolCallId: "d" }] }).is, "invalid")
    const failed = plan(conversation, { messages: [{ ...result, error: "no paint" }] })
    expect(JSON.parse(failed.is === "send" ? failed.content : "")).toMatchObject([{ id: "r1", error: "no paint" }])
  })

  it("has what the agent gets in addition to a message", () => {
    const system = { id: "s", role: "system", content: "Be brief" } as const
    assert.isUndefined(inputOf({ ...run, messages: [user("m")], tools: [], state: {}, forwardedProps: {} }))
    assert.deepStrictEqual(
      inputOf({ ...run, messages: [system, user("m")], tools: [{ name: "t" }], context: [], state: { a: 1 } }),
      { tools: [{ name: "t" }], state: { a: 1 }, messages: [system] }
    )
    expect(plan(conversationOf(), { messages: [{ ...user("m"), name: "anna" }] })).toMatchObject({
      run: { input: { name: "anna" } }
    })
  })
})

describe("The end of a run", () => {
  const endOf = (conversation: Conversation, done?: ReadonlySet<number>) =>
    Runs.endOf(run, conversation, new Messages.Names(conversation.epoch), "t1", done)

  it("has the reason of each interrupt, and the call that it is about", () => {
    const conversation = conversationOf(
      started,
      { type: "tool_call", ...turn, callId: "c", name: "rm", args: {} },
      { type: "question_requested", ...turn, requestId: "q", question: "Tea?", options: ["yes"] },
      { type: "approval_requested", ...turn, requestId: "a", action: "rm", details: { callId: "c" } },
      { type: "approval_requested", ...turn, requestId: "b", action: "write", description: "x" },
      { type: "question_requested", turnId: "t2", requestId: "other", question: "?" }
    )
    expect(endOf(conversation)).toMatchObject({
      type: "RUN_FINISHED",
      outcome: {
        type: "interrupt",
        interrupts: [
          { id: "q", reason: "input_required", message: "Tea?", responseSchema: { enum: ["yes"] } },
          { id: "a", reason: "tool_call", toolCallId: "c", responseSchema: { required: ["approved"] } },
          { id: "b", reason: "confirmation", message: "write: x" }
        ]
      }
    })
    const done = new Set(waitingIn(conversation).map(({ seq }) => seq))
    assert.isUndefined(endOf(conversation, done))
    // The agent asks again with the same id.
    const again = structuredClone(conversation)
    const fold = Fold.resume(again)
    const asked = { type: "question_requested", ...turn, requestId: "q", question: "Sure?" } as const
    for (const event of numbered([asked], again.seq)) Fold.add(fold, event)
    expect(endOf(fold.conversation, done)).toMatchObject({ outcome: { interrupts: [{ id: "q", message: "Sure?" }] } })
  })

  it("may be run again only where its message has not reached the agent", () => {
    for (const [code, isRetryable] of [
      ["not_sent", true],
      ["not_recorded", true],
      ["gateway_restarted", false]
    ] as const) {
      const failed: EventBody = { type: "turn_errored", ...turn, code, message: "x", retryable: true }
      expect(endOf(conversationOf(started, failed))).toMatchObject({
        type: "RUN_ERROR",
        metadata: { "causeway.retryable": isRetryable }
      })
    }
  })

  it("has the usage of the turn", () => {
    const usage: EventBody = { type: "usage_update", ...turn, inputTokens: 1, cacheReadTokens: 2, model: "m" }
    expect(endOf(conversationOf(started, usage, ended))).toMatchObject({
      outcome: { type: "success" },
      usage: [{ model: "m", inputTokens: 1, cachedInputTokens: 2 }]
    })
  })
})

describe("A snapshot", () => {
  it("has the newest messages that fit into an event that the client takes", () => {
    const text = (id: string, size: number) => ({ id, role: "assistant", content: "\n".repeat(size) }) as const
    const few = [text("a", 10), text("b", 10)]
    assert.deepStrictEqual(Messages.fitting(few), few)
    const result = { id: "r", role: "tool", toolCallId: "c", content: "x" } as const
    const many = [text("a", 4_000_000), text("b", 1_000_000), result, text("c", 4_000_000), text("d", 10)]
    assert.deepStrictEqual(
      Messages.fitting(many).map(({ id }) => id),
      ["c", "d"]
    )
  })
})
