/** What clients ask for, by what the conversation has. */
import { describe, expect, it } from "@effect/vitest"
import type { Conversation } from "../../../src/Client/Conversation/Conversation.ts"
import * as Fold from "../../../src/Client/Conversation/Fold.ts"
import type { EventBody } from "../../../src/Client/SessionModel.ts"
import { planOf, type Submission } from "../../../src/Gateway/AiSdk/Submission.ts"
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

describe("the last message of the agent", () => {
  const asked = (requestId: string): EventBody => ({ type: "approval_requested", ...turn, requestId, action: "write" })
  const resolved: EventBody = { type: "approval_resolved", ...turn, requestId: "a", approved: true }

  it("answers what is open, each once, also under an id that the agent uses again", () => {
    const conversation = conversationOf(started, asked("a"), resolved, asked("a"), asked("b"))
    const approvals = [
      { id: "a", approved: true },
      { id: "a-4", approved: true },
      { id: "b", approved: false, reason: "no" },
      { id: "unknown", approved: true }
    ]
    expect(planOf(conversation, decided("t1", ...approvals))).toMatchObject({
      is: "answer",
      replies: [
        { requestId: "a", answer: true },
        { requestId: "b", answer: { approved: false, reason: "no" } }
      ],
      target: { turnId: "t1", client: [{}, {}, {}, {}] }
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
