/** Keys of clients and of the gateway, which never meet; and messages that are too large for an instance. */
import { assert, describe, expect } from "@effect/vitest"
import { ask, outcome, post } from "../HttpSessions/Fixture.ts"
import { codeOf, connect, createSession, live } from "../Socket/Fixture.ts"
import { clientOf, textsOf } from "./Fixture.ts"

const body = (runId: string, messages: ReadonlyArray<object>, others: object = {}) => ({
  ...{ threadId: "t", runId, messages, ...others }
})

const user = (id: string, content: string) => ({ id, role: "user", content })

describe("A key", () => {
  live("of the gateway cannot be chosen by a client", function* ({ agUi, base, url }) {
    const client = yield* connect(url)
    const sessionId = yield* createSession(client)
    const id = "causeway:results x"
    const error = expect.stringMatching(/must not begin with "causeway:"/)
    const sent = yield* client.ask({ type: "send_message", sessionId, content: "[null]", clientMessageId: id })
    assert.strictEqual(codeOf(sent), "bad_request")
    const { json, status } = yield* post(`${base}/${sessionId}/messages`, { content: "x" }, { "idempotency-key": id })
    expect([status, json.error]).toEqual([400, error])
    expect(outcome(yield* post(`${agUi}/echo`, body("r", [user(id, "x")])))).toEqual({ status: 400, error })
    expect(outcome(yield* post(`${agUi}/echo`, body(id, [user("m", "x")])))).toEqual({ status: 400, error })
  })

  live("of a client may be as those that the gateway once had", function* ({ agUi, base, url }) {
    const client = clientOf(`${agUi}/echo`, { threadId: "t" })
    for (const id of ["ag-ui results x", "run run-1", "approval-4", "deadbeef-1", "deadbeef-2-result"]) {
      const { failure } = yield* client.say("[null]", `run of ${id}`, id)
      assert.isUndefined(failure, id)
      assert.strictEqual(textsOf(client.agent.messages).at(-1), "assistant: echo: [null]", id)
      assert.include(
        client.agent.messages.map(message => message.id),
        id
      )
    }
    const { sessions } = (yield* ask(base)).json
    const socket = yield* connect(url)
    const request = { type: "send_message", sessionId: sessions[0]!.id, content: "x" } as const
    yield* socket.get("accepted", { ...request, clientMessageId: "run z" })
    expect((yield* client.say("z", "z")).last).toMatchObject({ outcome: { type: "success" } })
    const again = clientOf(`${agUi}/echo`, { threadId: "t" })
    yield* again.run({ runId: "z" })
    assert.deepStrictEqual(again.agent.messages, client.agent.messages)
  })
})

describe("A message", () => {
  live(
    "that is too large for the instance is refused before anything runs",
    function* ({ agUi, base, chats, simulator }) {
      const large = "x".repeat(1_100_000)
      const error = expect.stringMatching(/have 11\d\d\d\d\d bytes as JSON; the limit is 1047552/)
      const chat = (text: string) => ({
        id: "t",
        messages: [{ id: "m", role: "user", parts: [{ type: "text", text }] }]
      })
      for (const answered of [
        yield* post(`${agUi}/echo`, body("r", [user("m", large)])),
        yield* post(`${agUi}/echo`, body("r", [user("m", "x")], { context: [large] })),
        yield* post(chats, chat(large))
      ]) {
        expect(outcome(answered)).toEqual({ status: 413, error })
      }
      assert.deepStrictEqual((yield* ask(base)).json.sessions, [])
      // What an instance takes at most.
      assert.strictEqual((yield* post(chats, chat("x".repeat(1_047_000)))).status, 200)
      assert.strictEqual((yield* simulator.state).frames.message, 1)
    }
  )
})
