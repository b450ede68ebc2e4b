/** Messages that are typed in the console and not sent. */
import { assert, describe, it } from "vitest"
import type { Sessions } from "../../src/Client/Client.ts"
import { Draft, draftFor } from "../../src/Console/Sessions/Drafts.ts"

const connection = () => ({}) as Sessions

/** Answers messages as it is told, and notes what it was asked. */
const gateway = () => {
  const sent: Array<{ readonly content: string; readonly clientMessageId: string | undefined }> = []
  let settle = (_failure?: Error) => {}
  const send: Sessions["send"] = (_, content, { clientMessageId = "" } = {}) => {
    sent.push({ content, clientMessageId })
    return new Promise((resolve, reject) => {
      settle = failure => (failure === undefined ? resolve({ turnId: "t", clientMessageId }) : reject(failure))
    })
  }
  return { sent, sessions: { send }, settle: (failure?: Error) => settle(failure) }
}

const unavailable = new Error("Store unavailable")

describe("A message that is typed", () => {
  it("stays with its session, and is not there for whoever connects next", () => {
    const [first, second] = [connection(), connection()]
    draftFor(first, "a").type("half a sent")
    assert.strictEqual(draftFor(first, "a").text, "half a sent")
    assert.strictEqual(draftFor(first, "b").text, "")
    assert.strictEqual(draftFor(second, "a").text, "")
  })

  it("is there again with the reason when it is refused, and is the same message when it is sent again", async () => {
    const { sent, sessions, settle } = gateway()
    const draft = new Draft(sessions, "a")
    draft.type("hello")
    const first = draft.send()
    assert.deepStrictEqual([draft.text, draft.isSending], ["", true])
    settle(unavailable)
    await first
    assert.deepStrictEqual([draft.text, draft.failure, draft.isSending], ["hello", "Store unavailable", false])
    const second = draft.send()
    settle()
    await second
    assert.deepStrictEqual([draft.text, draft.failure, draft.isSending], ["", "", false])
    assert.deepStrictEqual(
      sent.map(({ content }) => content),
      ["hello", "hello"]
    )
    assert.strictEqual(sent[1]?.clientMessageId, sent[0]?.clientMessageId)
  })

  it("is another message once it was changed, or once one was taken", async () => {
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

  it("is not sent while another one is, and comes after it when that is refused", async () => {
    const { sent, sessions, settle } = gateway()
    const draft = new Draft(sessions, "a")
    draft.type("first")
    const sending = draft.send()
    draft.type("second")
    await draft.send()
    assert.strictEqual(sent.length, 1)
    settle(unavailable)
    await sending
    assert.strictEqual(draft.text, "first\nsecond")
  })
})
