/** The streams of messages, read by the AI SDK's own reader. */
import { assert, describe, it } from "@effect/vitest"
import {
  parsePartialJson,
  readUIMessageStream,
  safeValidateUIMessages,
  type UIMessage,
  type UIMessageChunk,
  uiMessageChunkSchema
} from "ai"
import * as fc from "fast-check"
import { ownKey } from "../../../src/Client/Conversation/Conversation.ts"
import * as Fold from "../../../src/Client/Conversation/Fold.ts"
import type { EventBody, SessionEvent } from "../../../src/Client/SessionModel.ts"
import type { Chunk } from "../../../src/Gateway/AiSdk/Chunks.ts"
import { type Decision, MessageStream } from "../../../src/Gateway/AiSdk/MessageStream.ts"
import { messagesOf, segmentsOf, startOf, type UiMessage } from "../../../src/Gateway/AiSdk/UiMessage.ts"
import { anyEvents, numbered, usualEvents } from "../../Client/Conversation/Sessions.ts"
import { times } from "../../Scale.ts"

const stored = <A>(value: A): A => JSON.parse(JSON.stringify(value)) as A

/** Our chunks as those of the package, which `isChunk` checks. */
const asTheirs = (chunk: Chunk) => chunk as unknown as UIMessageChunk

const isChunk = async (chunk: Chunk): Promise<boolean> => {
  const result = await uiMessageChunkSchema().validate!(stored(asTheirs(chunk)))
  return result.success
}

/** What the package reads from chunks, which continue a message that the client has. The chunks travel as JSON text. */
const read = async (chunks: ReadonlyArray<Chunk>, message?: UIMessage): Promise<UIMessage | undefined> => {
  let failure: unknown
  const stream = new ReadableStream<UIMessageChunk>({
    start(controller) {
      for (const chunk of chunks) {
        if (chunk.type !== "error") controller.enqueue(stored(chunk) as UIMessageChunk)
      }
      controller.close()
    }
  })
  const onError = (error: unknown) => {
    failure = error
  }
  let last = message
  for await (const each of readUIMessageStream({ stream, onError, ...(message && { message: stored(message) }) }))
    last = each
  if (failure !== undefined) throw failure
  return last && stored(last)
}

/** A message of ours as the package has it: the arguments of an unfinished call also as a value. */
const asRead = async (message: UiMessage): Promise<unknown> => {
  const parts = await Promise.all(
    message.parts.map(async part => {
      if (!("rawInput" in part)) return part
      return { ...part, input: (await parsePartialJson(part.rawInput as string)).value }
    })
  )
  return stored({ ...message, parts })
}

const foldOf = (events: ReadonlyArray<SessionEvent>, limits = Fold.limits): Fold.Fold => {
  const fold = Fold.resume(Fold.empty("e"), limits)
  for (const event of events) Fold.add(fold, event)
  return fold
}

/** The turns whose message has started. */
const turnsOf = (fold: Fold.Fold): ReadonlyArray<string> => [...fold.turns.keys()]

/** The last message that a turn is shown as. */
const lastOf = (fold: Fold.Fold, turnId: string, id: string): UiMessage | undefined => {
  const found = messagesOf(fold.conversation).find(message => message.id === id)
  if (found !== undefined) return found
  const message = fold.turns.get(turnId)
  if (message === undefined) return undefined
  const segment = segmentsOf(message).find(each => each.id === id)
  if (segment === undefined || message.status !== "running") return undefined
  return { id, role: "assistant", metadata: startOf(message, segment), parts: [] }
}

const idOf = (chunks: ReadonlyArray<Chunk>): string => String(chunks[0]?.messageId)

/**
 * Follows the last message of a turn from a cut on, event by event, until its stream ends. Returns the chunks and the
 * number of events up to that end.
 */
const follow = (events: ReadonlyArray<SessionEvent>, cut: number, turnId: string, batch = 1) => {
  const fold = foldOf(events.slice(0, cut))
  const stream = new MessageStream(fold, turnId)
  const chunks = [...stream.begin()]
  let at = cut
  while (!stream.isEnded && at < events.length) {
    for (const event of events.slice(at, at + batch)) stream.add(event)
    at = Math.min(events.length, at + batch)
    chunks.push(...stream.next())
  }
  return { chunks, at }
}

describe("MessageStream", () => {
  it.each([
    ["any events", anyEvents],
    ["usual turns", usualEvents]
  ])("from any cut on makes of the client's message that of the conversation: %s", async (_, sessions) => {
    await fc.assert(
      fc.asyncProperty(sessions, fc.nat(), async (events, where) => {
        const cut = where % (events.length + 1)
        for (const turnId of turnsOf(foldOf(events.slice(0, cut)))) {
          const { at, chunks } = follow(events, cut, turnId)
          for (const chunk of chunks) assert.isTrue(await isChunk(chunk), JSON.stringify(chunk))
          const expected = lastOf(foldOf(events.slice(0, at)), turnId, idOf(chunks))
          if (expected === undefined) continue
          assert.deepStrictEqual(await read(chunks), await asRead(expected))
        }
      }),
      { numRuns: times(300) }
    )
  })

  it("leads to messages that the package accepts in a history", async () => {
    await fc.assert(
      fc.asyncProperty(fc.oneof(anyEvents, usualEvents), async events => {
        const messages = stored(messagesOf(foldOf(events).conversation)).filter(({ parts }) => parts.length > 0)
        if (messages.length === 0) return
        const validated = await safeValidateUIMessages({ messages })
        assert.isTrue(validated.success, validated.success ? "" : String(validated.error))
        // The generated messages of users have one id.
        const ids = messages.flatMap(({ id, role }) => (role === "assistant" ? [id] : []))
        assert.strictEqual(new Set(ids).size, ids.length, "ids are unique")
      }),
      { numRuns: times(200) }
    )
  })

  it("makes the same of batches of events", async () => {
    await fc.assert(
      fc.asyncProperty(fc.oneof(anyEvents, usualEvents), fc.integer({ min: 2, max: 9 }), async (events, batch) => {
        const first = events.findIndex(({ type }) => type === "turn_started") + 1
        for (const turnId of turnsOf(foldOf(events.slice(0, first)))) {
          const { at, chunks } = follow(events, first, turnId, batch)
          const fold = foldOf(events.slice(0, at))
          // A question that is answered within a batch divides the message for later readers only.
          if (segmentsOf(fold.turns.get(turnId)!).at(-1)?.id !== idOf(chunks)) continue
          const expected = lastOf(fold, turnId, idOf(chunks))
          if (expected !== undefined) assert.deepStrictEqual(await read(chunks), await asRead(expected))
        }
      }),
      { numRuns: times(300) }
    )
  })

  it("continues a message that the client has, wherever its stream ended", async () => {
    await fc.assert(
      fc.asyncProperty(fc.oneof(anyEvents, usualEvents), fc.nat(), fc.nat(), async (events, a, b) => {
        const [from, to] = [a % (events.length + 1), b % (events.length + 1)].sort((x, y) => x - y) as [number, number]
        const earlier = foldOf(events.slice(0, from))
        for (const turnId of turnsOf(earlier)) {
          const begun = [...new MessageStream(earlier, turnId).begin()]
          const message = (await read(begun))!
          const stream = new MessageStream(foldOf(events.slice(0, to)), turnId)
          const chunks = [...stream.begin(message.parts as never)]
          if (idOf(chunks) !== message.id) continue
          const expected = lastOf(foldOf(events.slice(0, to)), turnId, message.id)
          if (expected === undefined) continue
          assert.deepStrictEqual((await read(chunks, message))?.parts, ((await asRead(expected)) as UIMessage).parts)
        }
      }),
      { numRuns: times(300) }
    )
  })

  it("sends a message again whose oldest parts are dropped", async () => {
    const limits = { all: 900, text: 60, output: 20 }
    await fc.assert(
      fc.asyncProperty(fc.oneof(anyEvents, usualEvents), async events => {
        const first = events.findIndex(({ type }) => type === "turn_started") + 1
        const fold = foldOf(events.slice(0, first), limits)
        const turnId = turnsOf(fold)[0]
        if (turnId === undefined) return
        const stream = new MessageStream(fold, turnId)
        const chunks = [...stream.begin()]
        for (const event of events.slice(first)) {
          if (stream.isEnded) break
          stream.add(event)
          chunks.push(...stream.next())
        }
        const expected = lastOf(fold, turnId, idOf(chunks))
        if (expected !== undefined) assert.deepStrictEqual(await read(chunks), await asRead(expected))
      }),
      { numRuns: times(300) }
    )
  })
})

const turn = { turnId: "t1" } as const
const started: EventBody = { type: "turn_started", ...turn, content: "hi", sub: "anna", clientMessageId: "m" }

const streamOf = (...bodies: ReadonlyArray<EventBody>): ReadonlyArray<Chunk> => {
  const events = numbered([started, ...bodies])
  return follow(events, 1, "t1").chunks
}

describe("the chunks of a turn", () => {
  it("are those of text, reasoning and tools", () => {
    const chunks = streamOf(
      { type: "thinking_start", ...turn, thinkingId: "1" },
      { type: "thinking_delta", ...turn, thinkingId: "1", text: "so" },
      { type: "thinking_end", ...turn, thinkingId: "1" },
      { type: "tool_call_start", ...turn, callId: "c", name: "read" },
      { type: "tool_call_delta", ...turn, callId: "c", text: '{"a":' },
      { type: "tool_call_delta", ...turn, callId: "c", text: "1}" },
      { type: "tool_call", ...turn, callId: "c", name: "read", args: { a: 1 } },
      { type: "tool_progress", ...turn, callId: "c", progress: 0.5 },
      { type: "tool_result", ...turn, callId: "c", result: "ok" },
      { type: "text_start", ...turn, messageId: "2" },
      { type: "text_delta", ...turn, messageId: "2", text: "a" },
      { type: "text_delta", ...turn, messageId: "2", text: "b" },
      { type: "text_end", ...turn, messageId: "2", text: "abc" },
      { type: "usage_update", ...turn, inputTokens: 3 },
      { type: "turn_completed", ...turn }
    )
    const call = { toolCallId: "c", toolName: "read", dynamic: true, providerExecuted: true }
    assert.deepStrictEqual(chunks as unknown, [
      { type: "start", messageId: "t1", messageMetadata: { createdAt: 10, turnId: "t1" } },
      { type: "reasoning-start", id: "2" },
      { type: "reasoning-delta", id: "2", delta: "so" },
      { type: "reasoning-end", id: "2" },
      { type: "tool-input-start", ...call },
      { type: "tool-input-delta", toolCallId: "c", inputTextDelta: '{"a":' },
      { type: "tool-input-delta", toolCallId: "c", inputTextDelta: "1}" },
      { type: "tool-input-available", ...call, input: { a: 1 } },
      { type: "data-progress", id: "c", data: { toolCallId: "c", progress: 0.5 }, transient: true },
      { type: "tool-output-available", toolCallId: "c", output: "ok" },
      { type: "text-start", id: "11" },
      { type: "text-delta", id: "11", delta: "a" },
      { type: "text-delta", id: "11", delta: "b" },
      { type: "text-delta", id: "11", delta: "c" },
      { type: "text-end", id: "11" },
      { type: "message-metadata", messageMetadata: { status: "completed", usage: { inputTokens: 3 } } },
      { type: "finish", finishReason: "stop" }
    ])
  })

  it("end with an error, or an abort", () => {
    const failed = streamOf({ type: "turn_errored", ...turn, code: "x", message: "It failed", retryable: true })
    assert.deepStrictEqual(failed.at(-1), { type: "error", errorText: "It failed" })
    const stopped = streamOf({ type: "turn_interrupted", ...turn, reason: "enough" })
    assert.deepStrictEqual(stopped.at(-1), { type: "abort", reason: "enough" })
  })

  const asked = [
    started,
    { type: "text_delta", ...turn, messageId: "1", text: "a" },
    { type: "text_end", ...turn, messageId: "1" },
    { type: "approval_requested", ...turn, requestId: "r", action: "write", details: { path: "x" } }
  ] as const

  it("invent the call of an approval, end when a person is asked, and continue with what is new", async () => {
    const { chunks } = follow(numbered(asked), 1, "t1")
    const call = { toolCallId: "approval-r", toolName: "write", dynamic: true, providerExecuted: true }
    assert.deepStrictEqual(chunks.slice(-3) as unknown, [
      { type: "tool-input-available", ...call, input: { path: "x" } },
      { type: "tool-approval-request", toolCallId: "approval-r", approvalId: "r" },
      { type: "finish", finishReason: "tool-calls" }
    ])
    const message = (await read(chunks))!
    const parts = message.parts.map(part =>
      part.type === "dynamic-tool"
        ? { ...part, state: "approval-responded", approval: { id: "r", approved: true, reason: "fine" } }
        : part
    )
    const decisions = new Map<number, Decision>([[4, { approved: true, reason: "fine" }]])
    const stream = new MessageStream(foldOf(numbered(asked)), "t1", decisions)
    const continued = [...stream.begin(parts as never)]
    assert.isFalse(stream.isEnded, "the agent has not confirmed it")
    const rest: ReadonlyArray<EventBody> = [
      { type: "approval_resolved", ...turn, requestId: "r", approved: true },
      { type: "text_delta", ...turn, messageId: "2", text: "b" },
      { type: "turn_completed", ...turn }
    ]
    for (const event of numbered(rest, asked.length)) {
      stream.add(event)
      continued.push(...stream.next())
    }
    assert.deepStrictEqual(
      continued.map(({ type }) => type),
      ["start", "tool-output-available", "text-start", "text-delta", "text-end", "message-metadata", "finish"]
    )
  })

  it("continue after a decision that the agent has not confirmed, also if it is not known what it was", () => {
    const stream = new MessageStream(foldOf(numbered(asked)), "t1", new Map([[4, undefined]]))
    const types = Array.from(stream.begin(), ({ type }) => type)
    assert.deepStrictEqual(types.slice(-2), ["tool-input-available", "tool-approval-request"])
    assert.isFalse(stream.isEnded)
  })

  it("ask for the approval of a call that the agent names", () => {
    const chunks = streamOf(
      { type: "tool_call", ...turn, callId: "c", name: "write", args: {} },
      { type: "approval_requested", ...turn, requestId: "r", action: "write", details: { toolCallId: "c" } }
    )
    assert.deepStrictEqual(
      chunks.map(chunk => [chunk.type, "toolCallId" in chunk && chunk.toolCallId]),
      [
        ["start", false],
        ["tool-input-available", "c"],
        ["tool-approval-request", "c"],
        ["finish", false]
      ]
    )
  })

  it("continue after an answered question as another message, which the history has too", () => {
    const events = numbered([
      started,
      { type: "question_requested", ...turn, requestId: "q", question: "Tea?" },
      { type: "question_resolved", ...turn, requestId: "q", answer: "yes" },
      { type: "text_delta", ...turn, messageId: "1", text: "Tea" }
    ])
    const { conversation } = foldOf(events)
    assert.deepStrictEqual(
      messagesOf(conversation).map(({ id, parts, role }) => [id, role, parts.map(({ type }) => type)]),
      [
        ["m", "user", ["text"]],
        ["t1", "assistant", ["data-question"]],
        ["t1/2/answer", "user", ["text"]],
        ["t1/2", "assistant", ["text"]]
      ]
    )
    assert.deepStrictEqual(follow(events, 1, "t1").chunks.at(-1), { type: "finish", finishReason: "tool-calls" })
    assert.strictEqual(idOf(follow(events, 3, "t1").chunks), "t1/2")
  })

  it("show a message whose key is one of the service under an id that a client may send again", () => {
    const keyed = numbered([{ ...started, clientMessageId: ownKey("results x") }])
    assert.deepStrictEqual(messagesOf(foldOf(keyed).conversation)[0]?.id, "t1/message")
  })
})
