/** A gateway before agents that others have written, and before another gateway. */
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { Readable } from "node:stream"
import { assert, describe, expect } from "@effect/vitest"
import {
  type AnyTextAdapter,
  chat,
  chatParamsFromRequest,
  toolDefinition,
  toServerSentEventsResponse
} from "@tanstack/ai"
import { Effect, Fiber, Option } from "effect"
import { clientOf, textsOf } from "../../Gateway/AgUi/Fixture.ts"
import { makeStarted } from "../../Gateway/Socket/Fixture.ts"
import { test } from "../../Tests.ts"

const success = { type: "RUN_FINISHED", outcome: { type: "success" } }

/** A gateway before another one, which has the simulated agent. */
const nested = Effect.gen(function* () {
  const inner = yield* makeStarted({ simulator: { pace: "1 millis" } })
  // A stop goes to a path below the address, which may have a query.
  const outer = yield* makeStarted({ agents: { url: Option.some(`${inner.agUi}/echo?region=eu`) } })
  return { inner, outer }
})

describe("a gateway before a gateway", () => {
  test.scopedLive("has the same conversation, over several turns", function* () {
    const { inner, outer } = yield* nested
    const client = clientOf(`${outer.agUi}/echo`)
    for (const [index, text] of ["hello", "again", "once more"].entries()) {
      const { failure, last } = yield* client.say(text, `run-${index}`)
      assert.isUndefined(failure)
      expect(last).toMatchObject(success)
    }
    const texts = textsOf(client.agent.messages)
    expect(texts.filter(text => text.startsWith("assistant: echo"))).toEqual([
      ...["assistant: echo: hello", "assistant: echo: again", "assistant: echo: once more"]
    ])
    assert.lengthOf(texts, 15)
    assert.strictEqual((yield* inner.simulator.state).instances[0]?.turns, 3)
  })

  test.scopedLive("asks a person, passes on denials and errors, and stops", function* () {
    const { outer } = yield* nested
    const client = clientOf(`${outer.agUi}/echo`)
    yield* client.say("/ask", "run-1")
    const answers = (payload: unknown) =>
      client.interrupts().map(({ id }) => ({ interruptId: id, status: "resolved" as const, payload }))
    expect((yield* client.run({ runId: "run-2", resume: answers("red") })).last).toMatchObject(success)
    yield* client.say("/approve", "run-3")
    expect((yield* client.run({ runId: "run-4", resume: answers({ approved: false }) })).last).toMatchObject(success)
    expect(textsOf(client.agent.messages)).toEqual([
      ...["user: /ask", "assistant: answer: red", "user: /approve", "assistant: denied"]
    ])
    expect((yield* client.say("/fail no luck", "run-5")).last).toMatchObject({ type: "RUN_ERROR", code: "simulated" })
    const hanging = yield* Effect.fork(client.say("/hang", "run-6"))
    yield* client.until(({ runId, type }) => type === "RUN_STARTED" && runId === "run-6")
    yield* Effect.promise(() => fetch(`${outer.agUi}/echo/thread-1/runs/run-6`, { method: "DELETE" }))
    expect((yield* Fiber.join(hanging)).last).toMatchObject({ type: "RUN_FINISHED", outcome: { type: "cancelled" } })
    expect((yield* client.say("after", "run-7")).last).toMatchObject(success)
  })
})

/** A model that looks up the time when it is asked for it, and otherwise says what it was asked last. */
const model = {
  kind: "text",
  name: "scripted",
  model: "scripted",
  async *chatStream({
    messages,
    runId,
    threadId
  }: { messages: ReadonlyArray<{ role: string; content: unknown }> } & Record<string, unknown>) {
    const { content, role } = messages.at(-1)!
    const text = typeof content === "string" ? content : JSON.stringify(content)
    const ids = { threadId, runId, timestamp: Date.now() }
    yield { type: "RUN_STARTED", ...ids }
    if (role === "user" && text.includes("time")) {
      const call = { toolCallId: "call-1", toolCallName: "clock", toolName: "clock" }
      yield { type: "TOOL_CALL_START", ...ids, ...call, index: 0 }
      yield { type: "TOOL_CALL_ARGS", ...ids, ...call, delta: '{"zone":"UTC"}' }
      yield { type: "TOOL_CALL_END", ...ids, ...call, input: { zone: "UTC" } }
      yield { type: "RUN_FINISHED", ...ids, finishReason: "tool_calls" }
      return
    }
    const messageId = `message-${messages.length}`
    yield { type: "TEXT_MESSAGE_START", ...ids, messageId, role: "assistant" }
    for (const delta of [`${messages.length} messages, the last of them `, text]) {
      yield { type: "TEXT_MESSAGE_CONTENT", ...ids, messageId, delta }
    }
    yield { type: "TEXT_MESSAGE_END", ...ids, messageId }
    yield { type: "RUN_FINISHED", ...ids, finishReason: "stop" }
  }
} as unknown as AnyTextAdapter

const clock = toolDefinition({
  name: "clock",
  description: "The time in a zone",
  inputSchema: { type: "object", properties: { zone: { type: "string" } }, required: ["zone"] }
}).server(() => "noon")

/** An agent of TanStack AI. */
const tanstack = Effect.acquireRelease(
  Effect.async<{ readonly url: string; readonly close: () => void }>(resume => {
    const server = createServer(async (request, response) => {
      const body = Readable.toWeb(request) as ReadableStream
      const params = await chatParamsFromRequest(
        new Request("http://agent.test/", { method: "POST", body, duplex: "half" } as RequestInit)
      )
      const { messages, runId, threadId } = params
      const answer = toServerSentEventsResponse(
        chat({ adapter: model, messages: messages as never, tools: [clock], threadId, runId })
      )
      response.writeHead(answer.status, Object.fromEntries(answer.headers))
      Readable.fromWeb(answer.body as never).pipe(response)
    })
    server.listen(0, "127.0.0.1", () => {
      const close = () => {
        server.close()
        server.closeAllConnections()
      }
      resume(Effect.succeed({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, close }))
    })
  }),
  ({ close }) => Effect.sync(close)
)

describe("a gateway before an agent of TanStack AI", () => {
  test.scopedLive("has its texts and calls, and gives them back", function* () {
    const { url } = yield* tanstack
    const gateway = yield* makeStarted({ agents: { url: Option.some(url) } })
    const client = clientOf(`${gateway.agUi}/echo`)
    for (const text of ["hello", "what time is it?", "and now?"]) {
      const { failure, last } = yield* client.say(text)
      assert.isUndefined(failure)
      expect(last).toMatchObject(success)
    }
    expect(textsOf(client.agent.messages)).toEqual([
      "user: hello",
      "assistant: 1 messages, the last of them hello",
      "user: what time is it?",
      'assistant: clock({"zone":"UTC"})',
      "tool: noon",
      "assistant: 5 messages, the last of them noon",
      "user: and now?",
      "assistant: 7 messages, the last of them and now?"
    ])
  })
})
