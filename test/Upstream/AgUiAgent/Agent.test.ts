/** Sessions of a gateway before agents that speak AG-UI, built with the official encoder. */
import { assert, describe, expect } from "@effect/vitest"
import { Effect, Option, Redacted } from "effect"
import type { Event } from "../../../src/Gateway/Protocol.ts"
import type * as AgUiAgent from "../../../src/Upstream/AgUiAgent.ts"
import { type Client, codeOf, completeTurn, connect, createSession, makeStarted } from "../../Gateway/Socket/Fixture.ts"
import { test } from "../../Tests.ts"
import { lines, make, type Script } from "./AgentServer.ts"

/** A gateway before an agent, and a client with a subscribed session. */
const connected = (script: Script, settings: Partial<AgUiAgent.Settings> = {}) =>
  Effect.gen(function* () {
    const agent = yield* make(script)
    const gateway = yield* makeStarted({ agents: { url: Option.some(agent.url), ...settings } })
    const client = yield* connect(gateway.url)
    const sessionId = yield* createSession(client)
    yield* client.get("subscribed", { type: "subscribe", sessionId })
    return { agent, gateway, client, sessionId }
  })

const echo: Script = run => {
  run.begin()
  run.say(`echo: ${run.text}`)
  run.finish()
}

const isEnd = ({ type }: Event) => type === "turn_completed" || type === "turn_errored" || type === "turn_interrupted"

/** Sends a message, and returns the end of its turn. */
const ended = (client: Client, sessionId: string, content: string) =>
  Effect.gen(function* () {
    const { turnId } = yield* client.get("accepted", { type: "send_message", sessionId, content })
    return yield* client.untilEvent(sessionId, event => isEnd(event) && "turnId" in event && event.turnId === turnId)
  })

const textOf = (events: ReadonlyArray<Event>) =>
  events.flatMap(event => (event.type === "text_delta" ? [event.text] : [])).join("")

describe("an agent behind a gateway", () => {
  test.scopedLive("gets the conversation with each message", function* () {
    const { agent, client, sessionId } = yield* connected(echo, {
      apiKey: Option.some(Redacted.make("key")),
      headers: { "x-region": Redacted.make("eu") }
    })
    yield* completeTurn(client, sessionId, "one")
    yield* completeTurn(client, sessionId, "two")
    const [first, second] = agent.runs
    expect(lines(first!.input.messages)).toEqual(["user: one"])
    expect(lines(second!.input.messages)).toEqual(["user: one", "assistant: echo: one", "user: two"])
    assert.strictEqual(second!.input.threadId, `dev-${sessionId}`)
    assert.strictEqual(first!.input.threadId, second!.input.threadId)
    const ids = client.events(sessionId).flatMap(event => (event.type === "turn_started" ? [event.turnId] : []))
    expect(agent.runs.map(({ input }) => input.runId)).toEqual(ids)
    const { headers } = first!.request
    expect([headers.authorization, headers["x-region"], headers.accept]).toEqual([
      ...["Bearer key", "eu", "text/event-stream"]
    ])
    assert.strictEqual(textOf(client.events(sessionId)), "echo: oneecho: two")
    // The ids of the agent's messages are its own.
    const texts = client.events(sessionId).flatMap(event => (event.type === "text_start" ? [event.messageId] : []))
    assert.strictEqual(second!.input.messages[1]!.id, texts[0])
  })

  test.scopedLive("gets one message after the other", function* () {
    const { agent, client, sessionId } = yield* connected(run => run.begin())
    const running = agent.runs
    for (const content of ["one", "two"]) yield* client.get("accepted", { type: "send_message", sessionId, content })
    yield* agent.until(() => agent.runs[0])
    running[0]!.say("first")
    running[0]!.finish()
    yield* agent.until(() => agent.runs[1])
    expect(lines(running[1]!.input.messages)).toEqual(["user: one", "assistant: first", "user: two"])
    expect(lines(running[0]!.input.messages)).toEqual(["user: one"])
    running[1]!.finish()
    yield* client.until(() => client.events(sessionId).filter(isEnd).length === 2)
  })

  test.scopedLive("is stopped by the end of its request, and a waiting message is withdrawn", function* () {
    const { agent, client, sessionId } = yield* connected(run => {
      run.begin()
      if (run.text !== "next") return
      run.say("on")
      run.finish()
    })
    const send = (content: string) => client.get("accepted", { type: "send_message", sessionId, content })
    const [{ turnId: first }, { turnId: second }] = [yield* send("hang"), yield* send("never")]
    yield* agent.until(() => agent.runs[0])
    for (const turnId of [second, first]) {
      yield* client.get("accepted", { type: "interrupt_turn", sessionId, turnId: turnId! })
      const isItsEnd = (event: Event) => isEnd(event) && "turnId" in event && event.turnId === turnId
      assert.strictEqual((yield* client.untilEvent(sessionId, isItsEnd)).type, "turn_interrupted")
    }
    yield* agent.until(() => (agent.runs[0]!.isClosed ? true : undefined))
    assert.strictEqual((yield* ended(client, sessionId, "next")).type, "turn_completed")
    assert.lengthOf(agent.runs, 2)
    expect(lines(agent.runs[1]!.input.messages)).toEqual(["user: next"])
  })

  test.scopedLive("asks a person, and continues with all answers in another run of the turn", function* () {
    const { agent, client, sessionId } = yield* connected(run => {
      run.begin()
      const { resume } = run.input
      if (resume !== undefined) {
        run.say(resume.map(({ status, payload }) => `${status} ${JSON.stringify(payload)}`).join(", "))
        return run.finish()
      }
      run.event("TOOL_CALL_START", { toolCallId: "c1", toolCallName: "delete" })
      run.event("TOOL_CALL_ARGS", { toolCallId: "c1", delta: '{"path":"a"}' })
      run.event("TOOL_CALL_END", { toolCallId: "c1" })
      run.finish({
        outcome: {
          type: "interrupt",
          interrupts: [
            { id: "q", reason: "input_required", message: "Which?", responseSchema: { enum: ["red", "blue"] } },
            { id: "a", reason: "tool_call", message: "Delete it?", toolCallId: "c1" }
          ]
        }
      })
    })
    const { turnId } = yield* client.get("accepted", { type: "send_message", sessionId, content: "do it" })
    yield* client.untilEvent(sessionId, ({ type }) => type === "approval_requested")
    yield* client.get("accepted", { type: "answer", sessionId, requestId: "q", answer: "red" })
    yield* client.get("accepted", { type: "answer", sessionId, requestId: "a", answer: { approved: true } })
    const end = yield* client.untilEvent(sessionId, isEnd)
    expect(end).toMatchObject({ type: "turn_completed", turnId })
    assert.strictEqual(textOf(client.events(sessionId)), 'resolved "red", resolved {"approved":true}')
    const [first, second] = agent.runs
    expect([first!.input.runId, second!.input.runId]).toEqual([turnId, `${turnId}-2`])
    expect(lines(second!.input.messages)).toEqual(["user: do it", 'assistant: delete({"path":"a"})'])
    expect(client.events(sessionId).filter(({ type }) => type.endsWith("_resolved"))).toEqual([
      expect.objectContaining({ type: "question_resolved", requestId: "q", answer: "red" }),
      expect.objectContaining({ type: "approval_resolved", requestId: "a", approved: true })
    ])
  })

  test.scopedLive("has no files, and no agent of other types", function* () {
    const agent = yield* make(echo)
    const gateway = yield* makeStarted({ agents: { urls: new Map([["echo", agent.url]]) } })
    const client = yield* connect(gateway.url)
    const sessionId = yield* createSession(client)
    const files = yield* client.ask({ type: "list_files", sessionId })
    expect(files).toMatchObject({ error: { code: "bad_request", message: expect.stringContaining("no files") } })
    const other = yield* createSession(client, { agentType: "other" })
    const refused = yield* client.ask({ type: "send_message", sessionId: other, content: "hi" })
    expect(refused).toMatchObject({ error: { message: expect.stringContaining('no agent of the type "other"') } })
  })

  test.scopedLive("that cannot be reached, or refuses, gets no message", function* () {
    const { client, sessionId } = yield* connected(echo, { url: Option.some("http://127.0.0.1:1/agent") })
    const answer = yield* client.ask({ type: "send_message", sessionId, content: "hi", clientMessageId: "m1" })
    assert.strictEqual(codeOf(answer), "upstream_unavailable")
    expect(yield* client.untilEvent(sessionId, isEnd)).toMatchObject({ type: "turn_errored", code: "not_sent" })
    const refusing = yield* connected(run => {
      run.response.writeHead(402, { "content-type": "application/json" }).end('{"error":"pay first"}')
    })
    const refused = yield* refusing.client.ask({ type: "send_message", sessionId: refusing.sessionId, content: "hi" })
    expect(refused).toMatchObject({ error: { message: expect.stringContaining("pay first") } })
    assert.lengthOf(refusing.agent.runs, 1)
  })
})
