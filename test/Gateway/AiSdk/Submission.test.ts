/** What clients ask for, by what the conversation has. */
import { describe, expect, it } from "@effect/vitest"
import type { Conversation } from "../../../src/Client/Conversation/Conversation.ts"
import * as Fold from "../../../src/Client/Conversation/Fold.ts"
import type { EventBody } from "../../../src/Client/SessionModel.ts"
import { type ClientMessage, type Submission, stepOf } from "../../../src/Gateway/AiSdk/Submission.ts"
import { numbered } from "../../Client/Conversation/Sessions.ts"

const conversationOf = (...bodies: ReadonlyArray<EventBody>): Conversation => {
  const fold = Fold.resume(Fold.empty("e"))
  for (const event of numbered(bodies)) Fold.add(fold, event)
  return fold.conversation
}

const turn = { turnId: "t1" } as const
const started: EventBody = { type: "turn_started", ...turn, content: "hi", clientMessageId: "m" }
const completed: EventBody = { type: "turn_completed", ...turn }

const user = (id: string, text: string, trigger: Submission["trigger"] = "submit-message"): Submission => ({
  trigger,
  messages: [{ id, role: "user", parts: [{ type: "text", text }] }]
})

const decided = (id: string, ...approvals: ReadonlyArray<object>): Submission => ({
  messages: [{ id, role: "assistant", parts: approvals.map(approval => ({ type: "dynamic-tool", approval })) }]
})

const planOf = (conversation: Conversation, submission: Submission) => stepOf(conversation, submission).plan

const refusal = (conversation: Conversation, submission: Submission): unknown => {
  const plan = planOf(conversation, submission)
  return plan.is === "refused" ? [plan.error._tag, plan.error.error] : plan
}

describe("the last message of a user", () => {
  it("is sent once, and attaches if it is known", () => {
    expect(planOf(conversationOf(), user("m", "hi"))).toMatchObject({
      is: "send",
      content: "hi",
      clientMessageId: "m",
      earlier: []
    })
    const failed = (code: string): EventBody => ({
      type: "turn_errored",
      ...turn,
      code,
      message: "no",
      retryable: true
    })
    for (const trigger of ["submit-message", "regenerate-message"] as const) {
      const plan = planOf(conversationOf(started, failed("not_sent")), user("m", "hi", trigger))
      expect(plan).toMatchObject({ is: "send", clientMessageId: "m" })
    }
    expect(planOf(conversationOf(started, failed("lost")), user("m", "hi"))).toMatchObject({ is: "attach" })
    for (const events of [[started], [started, completed]]) {
      const attached = { is: "attach", target: { turnId: "t1" } }
      expect(planOf(conversationOf(...events), user("m", "hi"))).toEqual(attached)
      expect(refusal(conversationOf(...events), user("m", "ho"))).toEqual([
        "Conflict",
        expect.stringMatching(/another/)
      ])
    }
    const texts = {
      messages: [{ id: "n", role: "user" as const, parts: ["a", "b"].map(text => ({ type: "text", text })) }]
    }
    expect(planOf(conversationOf(), texts)).toMatchObject({ content: "a\nb" })
  })

  it("may be generated again while it is unanswered", () => {
    const again = user("m", "hi", "regenerate-message")
    expect(planOf(conversationOf(), again)).toMatchObject({ is: "send" })
    expect(planOf(conversationOf(started), again)).toMatchObject({ is: "attach" })
    expect(refusal(conversationOf(started, completed), again)).toEqual(["Conflict", expect.stringMatching(/answered/)])
  })

  it("answers a question, and not an approval", () => {
    const question: EventBody = { type: "question_requested", ...turn, requestId: "q", question: "Tea?" }
    const asked = conversationOf(started, question)
    const reply = { requestId: "q", answer: "yes", clientMessageId: "n" }
    expect(planOf(asked, user("n", "yes"))).toEqual({
      ...{ is: "answer", replies: [reply] },
      target: { turnId: "t1", after: 2 }
    })
    const answered = conversationOf(started, question, {
      type: "question_resolved",
      ...turn,
      requestId: "q",
      answer: "yes"
    })
    const earlier = [{ reply, target: { turnId: "t1", after: 2 } }]
    expect(planOf(answered, user("n", "yes"))).toMatchObject({ is: "send", earlier })
    expect(planOf(answered, user("n", "no"))).toMatchObject({ is: "send", earlier: [] })
    // As the history has it.
    expect(planOf(answered, user("t1/2/answer", "yes"))).toEqual({ is: "attach", target: { turnId: "t1" } })
    const approval: EventBody = { type: "approval_requested", ...turn, requestId: "a", action: "write" }
    expect(refusal(conversationOf(started, approval), user("n", "yes"))).toEqual([
      "Conflict",
      "The agent waits for an approval: answer it first"
    ])
  })
})

describe("several messages of a user", () => {
  const of = (...ids: ReadonlyArray<string>): Submission => ({ messages: ids.flatMap(id => user(id, "hi").messages) })

  it("are sent in order: those after the last one that is known", () => {
    const step = (submission: Submission, events: ReadonlyArray<EventBody>, after?: number) => {
      const { index, plan } = stepOf(
        conversationOf(...events),
        submission,
        after === undefined ? undefined : { index: after }
      )
      return [index, plan.is, plan.is === "send" ? plan.clientMessageId : undefined]
    }
    expect(step(of("a", "b"), [])).toEqual([0, "send", "a"])
    expect(step(of("a", "b"), [], 0)).toEqual([1, "send", "b"])
    expect(step(of("a", "m"), [started])).toEqual([1, "attach", undefined])
    expect(step(of("a", "m", "b", "c"), [started])).toEqual([2, "send", "b"])
    expect(step(of("a", "m", "b", "c"), [started], 2)).toEqual([3, "send", "c"])
    const agent: ClientMessage = { id: "t1", role: "assistant", parts: [] }
    expect(step({ messages: [...of("old").messages, agent, ...of("a").messages] }, [])).toEqual([2, "send", "a"])
  })

  it("are all checked before any is sent", () => {
    const file = { id: "f", role: "user" as const, parts: [{ type: "file", url: "data:," }] }
    for (const messages of [
      [file, ...of("a").messages],
      [...of("a").messages, file]
    ]) {
      expect(refusal(conversationOf(), { messages })).toEqual([
        "BadRequest",
        expect.stringMatching(/messages\[[01]\]\.parts\[0\]: a part of type "file" cannot be sent/)
      ])
    }
    expect(refusal(conversationOf(), of(...Array.from({ length: 17 }, (_, index) => `m${index}`)))).toEqual([
      "BadRequest",
      expect.stringMatching(/17 are new; the limit is 16/)
    ])
  })

  it("answer the question that waits, and none that their user has not seen", () => {
    const question: EventBody = { type: "question_requested", ...turn, requestId: "q", question: "Tea?" }
    const asked = conversationOf(started, question)
    expect(stepOf(asked, of("a", "b"))).toMatchObject({ index: 0, plan: { is: "answer" } })
    // The agent has not confirmed it yet.
    expect(stepOf(asked, of("a", "b"), { index: 0, after: 2 })).toMatchObject({ index: 1, plan: { is: "send" } })
    expect(stepOf(asked, of("a", "b"), { index: 0 }).plan).toMatchObject({ is: "refused", error: { _tag: "Conflict" } })
  })
})

describe("parts that are wrong", () => {
  const asked = conversationOf(started, { type: "approval_requested", ...turn, requestId: "a", action: "write" })
  const odd = { toString: 1 }

  const wrong: ReadonlyArray<readonly [member: string, part: Readonly<Record<string, unknown>>]> = [
    ["type", { type: odd }],
    ["type", {}],
    ["text", { type: "text", text: odd }],
    ["state", { type: "dynamic-tool", state: odd }],
    ["toolCallId", { type: "dynamic-tool", toolCallId: null }],
    ["approval", { type: "dynamic-tool", approval: null }],
    ["approval.id", { type: "dynamic-tool", approval: { approved: true } }],
    ["approval.approved", { type: "dynamic-tool", approval: { id: "a", approved: "yes" } }],
    ["approval.reason", { type: "dynamic-tool", approval: { id: "a", approved: true, reason: odd } }],
    ["approval.id", { type: "dynamic-tool", approval: { id: "unknown", approved: true } }]
  ]

  it.each(wrong)("are named: %s of %j", (member, part) => {
    const messages = [{ id: "t1", role: "assistant" as const, parts: [{ type: "step-start" }, part] }]
    expect(refusal(asked, { messages })).toEqual([
      "BadRequest",
      expect.stringContaining(`Invalid request: messages[0].parts[1].${member}: `)
    ])
  })

  it("are the client's own where nothing is known of them", () => {
    expect(planOf(asked, decided("t1", { id: "a", approved: true }, { id: "other" }))).toMatchObject({ is: "answer" })
    const messages: ReadonlyArray<ClientMessage> = [
      { id: "old", role: "assistant", parts: [{ type: "text", text: odd }] },
      ...user("n", "hi").messages
    ]
    expect(planOf(conversationOf(), { messages })).toMatchObject({ is: "send" })
  })
})

describe("the last message of the agent", () => {
  const asked = (requestId: string): EventBody => ({ type: "approval_requested", ...turn, requestId, action: "write" })
  const resolved: EventBody = { type: "approval_resolved", ...turn, requestId: "a", approved: true }

  it("answers what is open, each once, also under an id that the agent uses again", () => {
    const conversation = conversationOf(started, asked("a"), resolved, asked("a"), asked("b"))
    const approvals = [
      { id: "a", approved: true },
      { id: "a-4", approved: true },
      { id: "b", approved: false, reason: "no" }
    ]
    expect(planOf(conversation, decided("t1", ...approvals))).toMatchObject({
      is: "answer",
      replies: [
        { requestId: "a", answer: true },
        { requestId: "b", answer: { approved: false, reason: "no" } }
      ],
      target: { turnId: "t1", client: [{}, {}, {}] }
    })
  })

  it("is the one that the client names, where a message that was refused follows it", () => {
    const conversation = conversationOf(started, asked("a"))
    const messages = [...decided("t1", { id: "a", approved: true }).messages, ...user("n", "well?").messages]
    expect(planOf(conversation, { messages, messageId: "t1" })).toMatchObject({
      is: "answer",
      replies: [{ requestId: "a" }]
    })
    expect(refusal(conversation, { messages, messageId: "n" })).toEqual([
      "Conflict",
      expect.stringMatching(/answer it first/)
    ])
    expect(refusal(conversation, { messages, messageId: "other" })).toEqual([
      "BadRequest",
      expect.stringMatching(/messageId/)
    ])
  })

  it("attaches if all is answered, and is refused if it was answered otherwise", () => {
    const conversation = conversationOf(started, asked("a"), resolved)
    expect(planOf(conversation, decided("t1", { id: "a", approved: true }))).toMatchObject({ is: "attach" })
    expect(refusal(conversation, decided("t1", { id: "a", approved: false }))).toEqual([
      "Conflict",
      'The approval "a" was granted before'
    ])
    const expired = conversationOf(started, asked("a"), completed)
    expect(planOf(expired, decided("t1", { id: "a", approved: true }))).toMatchObject({ is: "attach" })
  })

  it("is refused if it is not the newest part of its turn, or not known", () => {
    const question: EventBody = { type: "question_requested", ...turn, requestId: "q", question: "Tea?" }
    const answer: EventBody = { type: "question_resolved", ...turn, requestId: "q", answer: "yes" }
    const conversation = conversationOf(started, question, answer)
    expect(refusal(conversation, decided("t1"))).toEqual(["Conflict", 'The message "t1" was followed by another one'])
    expect(planOf(conversation, decided("t1/2"))).toMatchObject({ is: "attach" })
    expect(refusal(conversation, decided("other"))).toEqual(["Conflict", 'The message "other" is not known'])
  })
})
