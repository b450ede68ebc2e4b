/** Messages that are typed in the console. */
import { assert, describe, it } from "vitest"
import type { Sessions } from "../../src/Client/Client.ts"
import { Draft, draftFor } from "../../src/Console/Sessions/Drafts.ts"

const connection = () => ({}) as Sessions

/** A gateway whose answers are set by the test, and which records requests. */
const gateway = () => {
  const sent: Array<{ readonly content: string; readonly clientMessageId: string | undefined }> = []
  const answers: Array<{ readonly requestId: string; readonly answer: unknown; readonly clientMessageId: string }> = []
  let settle = (_failure?: Error) => {}
  const send: Sessions["send"] = (_, content, { clientMessageId = "" } = {}) => {
    sent.push({ content, clientMessageId })
    return new Promise((resolve, reject) => {
      settle = failure => (failure === undefined ? resolve({ turnId: "t", clientMessageId }) : reject(failure))
    })
  }
  const answer: Sessions["answer"] = (_, requestId, answer, { clientMessageId = "" } = {}) => {
    answers.push({ requestId, answer, clientMessageId })
    return new Promise((resolve, reject) => {
      settle = failure => (failure === undefined ? resolve() : reject(failure))
    })
  }
  return { answers, sent, sessions: { answer, send }, settle: (failure?: Error) => settle(failure) }
}

const unavailable = new Error("Store unavailable")

describe("A message that is typed", () => {
  it("is kept for its session and its connection", () => {
    const [first, second] = [connection(), connection()]
    draftFor(first, "a").type("half a sent")
    assert.strictEqual(draftFor(first, "a").text.value, "half a sent")
    assert.strictEqual(draftFor(first, "b").text.value, "")
    assert.strictEqual(draftFor(second, "a").text.value, "")
  })

  it("is restored with the reason when it is refused, and is sent again with the same id", async () => {
    const { sent, sessions, settle } = gateway()
    const draft = new Draft(sessions, "a")
    draft.type("hello")
    const first = draft.send()
    assert.deepStrictEqual([draft.text.value, draft.isSending.value], ["", true])
    settle(unavailable)
    await first
    assert.deepStrictEqual(
      [draft.text.value, draft.failure.value, draft.isSending.value],
      ["hello", "Store unavailable", false]
    )
    const second = draft.send()
    settle()
    await second
    assert.deepStrictEqual([draft.text.value, draft.failure.value, draft.isSending.value], ["", "", false])
    assert.deepStrictEqual(
      sent.map(({ content }) => content),
      ["hello", "hello"]
    )
    assert.strictEqual(sent[1]?.clientMessageId, sent[0]?.clientMessageId)
  })

  it("has another id after it was changed or accepted", async () => {
    const { sent, sessions, settle } = gateway()
    const draft = new Draft(sessions, "a")
    const say = async (text: string, failure?: Error) => {
      draft.type(text)
      const sending = draft.send()
      settle(failure)
      await sending
    }
    await say("yes", unavailable)
    await say("yes")
    await say("yes")
    assert.strictEqual(new Set(sent.map(({ clientMessageId }) => clientMessageId)).size, 3)
  })

  it("is the answer while a question waits, and is restored if that is refused", async () => {
    const { answers, sent, sessions, settle } = gateway()
    const draft = new Draft(sessions, "a")
    draft.type("blue")
    const first = draft.send("q")
    settle(unavailable)
    await first
    assert.deepStrictEqual([draft.text.value, draft.failure.value], ["blue", "Store unavailable"])
    const second = draft.send("q")
    settle()
    await second
    assert.deepStrictEqual([draft.text.value, draft.failure.value, draft.isSending.value], ["", "", false])
    assert.deepStrictEqual(
      answers.map(({ answer, requestId }) => [requestId, answer]),
      [
        ["q", "blue"],
        ["q", "blue"]
      ]
    )
    assert.strictEqual(answers[1]?.clientMessageId, answers[0]?.clientMessageId)
    assert.deepStrictEqual(sent, [])
  })

  it("has another id as an answer than as a message, and than for another question", async () => {
    const { answers, sent, sessions, settle } = gateway()
    const draft = new Draft(sessions, "a")
    draft.type("blue")
    for (const question of [undefined, "q", "r"]) {
      const sending = draft.send(question)
      settle(unavailable)
      await sending
    }
    assert.strictEqual(new Set([...sent, ...answers].map(({ clientMessageId }) => clientMessageId)).size, 3)
  })

  it("is not sent during another message, and follows it if that is refused", async () => {
    const { sent, sessions, settle } = gateway()
    const draft = new Draft(sessions, "a")
    draft.type("first")
    const sending = draft.send()
    draft.type("second")
    await draft.send()
    assert.strictEqual(sent.length, 1)
    settle(unavailable)
    await sending
    assert.strictEqual(draft.text.value, "first\nsecond")
  })
})
