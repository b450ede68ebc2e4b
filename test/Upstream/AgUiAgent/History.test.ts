/** The messages that an agent gets of a conversation. */
import { describe, expect, it } from "@effect/vitest"
import { FastCheck as fc } from "effect"
import type { AgentMessage, Conversation, Message, Part } from "../../../src/Client/Conversation/Conversation.ts"
import { messagesFor } from "../../../src/Upstream/AgUiAgent/History.ts"
import { times } from "../../Scale.ts"

const all = { messages: 1000, bytes: 10_000_000 }

let seq = 0
const at = () => ({ seq: ++seq, timestamp: 0 })

const user = (turnId: string, text: string): Message => ({ role: "user", ...at(), turnId, text })

const agent = (turnId: string, parts: Array<Part>, members: Partial<AgentMessage> = {}): Message => ({
  ...{ role: "agent" as const, ...at(), lastSeq: 0, turnId, status: "completed" as const, parts },
  ...members
})

const text = (text: string, id?: string): Part => ({ type: "text", ...at(), text, ...(id === undefined ? {} : { id }) })
const tool = (callId: string, members: object = {}): Part => ({
  ...{ type: "tool", ...at(), callId, name: "look", args: { at: callId } },
  ...members
})

const of = (...messages: Array<Message>): Conversation => ({
  ...{ epoch: "0123456789", seq, trimmedSeq: 0, turns: [], waiting: [] },
  messages
})

const turn = (turnId: string, later: ReadonlyArray<string> = []) => ({ turnId, later: new Set(later) })

describe("the history", () => {
  it("has texts and calls with their results, and no thoughts", () => {
    const conversation = of(
      user("t1", "hi"),
      agent("t1", [
        { type: "reasoning", ...at(), text: "hm" },
        text("hello", "m1"),
        tool("c1", { result: { found: 1 } }),
        tool("c2"),
        tool("c3", { error: { message: "no" } })
      ]),
      user("t2", "more"),
      agent("t2", [], { status: "running" })
    )
    expect(messagesFor(conversation, turn("t2"), all)).toEqual([
      { id: "t1", role: "user", content: "hi" },
      { id: "m1", role: "assistant", content: "hello" },
      expect.objectContaining({ role: "assistant", toolCalls: [expect.objectContaining({ id: "c1" })] }),
      expect.objectContaining({ role: "tool", toolCallId: "c1", content: '{"found":1}' }),
      expect.objectContaining({ role: "assistant", toolCalls: [expect.objectContaining({ id: "c3" })] }),
      { id: expect.any(String), role: "tool", toolCallId: "c3", content: "no" },
      { id: "t2", role: "user", content: "more" }
    ])
  })

  it("has no message that is sent later, or was not answered before its turn ended", () => {
    const conversation = of(
      user("t1", "lost"),
      agent("t1", [{ type: "reasoning", ...at(), text: "hm" }], { status: "failed", error: { message: "" } }),
      user("t0", "stopped"),
      agent("t0", [], { status: "interrupted" }),
      user("t2", "now"),
      agent("t2", [tool("c1")], { status: "running" }),
      user("t3", "later"),
      agent("t3", [], { status: "running" })
    )
    expect(messagesFor(conversation, turn("t2", ["t3"]), all).map(({ role }) => role)).toEqual(["user", "assistant"])
  })

  it("has the results of a client at their calls", () => {
    const results = JSON.stringify([{ id: "r1", toolCallId: "c1", content: "done" }])
    const conversation = of(user("t1", "hi"), agent("t1", [tool("c1"), tool("c2")]), {
      ...user("t2", results),
      clientMessageId: "causeway:results x"
    } as Message)
    expect(messagesFor(conversation, turn("t2"), all)).toEqual([
      { id: "t1", role: "user", content: "hi" },
      expect.objectContaining({ toolCalls: [expect.objectContaining({ id: "c1" })] }),
      { id: "r1", role: "tool", toolCallId: "c1", content: "done" }
    ])
  })

  it("is cut before a message of a user, and has the newest message in any case", () => {
    const conversation = of(
      user("t1", "one"),
      agent("t1", [text("first")]),
      user("t2", "two"),
      agent("t2", [text("second")]),
      user("t3", "x".repeat(5000))
    )
    const contents = (limits: object) =>
      messagesFor(conversation, turn("t3"), { ...all, ...limits }).map(message =>
        "content" in message ? String(message.content).slice(0, 6) : ""
      )
    expect(contents({ messages: 4 })).toEqual(["two", "second", "xxxxxx"])
    expect(contents({ messages: 3 })).toEqual(["two", "second", "xxxxxx"])
    expect(contents({ messages: 2 })).toEqual(["xxxxxx"])
    expect(contents({ bytes: 100 })).toEqual(["xxxxxx"])
    expect(contents({ bytes: 5150 })).toEqual(["two", "second", "xxxxxx"].slice(-contents({ bytes: 5150 }).length))
  })

  it("is cut inside a turn that is longer than its limits, between whole groups, after the turn's message", () => {
    const parts = Array.from({ length: 300 }, (_, index) => [tool(`c${index}`, { result: "r" }), text(`t${index}`)])
    const conversation = of(user("t1", "long"), agent("t1", parts.flat()), user("t2", "next"))
    const sent = messagesFor(conversation, turn("t2"), { ...all, messages: 400 })
    expect(sent.length).toBeGreaterThan(397)
    expect(sent.length).toBeLessThanOrEqual(400)
    expect([sent[0], sent.at(-1)].map(message => message!.id)).toEqual(["t1", "t2"])
    expect(sent.filter(({ role }) => role === "tool")).toHaveLength(
      sent.filter(message => message.role === "assistant" && message.toolCalls !== undefined).length
    )
    expect(sent[1]!.role).toBe("assistant")
    const inTurn = of(user("t1", "long"), agent("t1", parts.flat(), { status: "running" }))
    expect(messagesFor(inTurn, turn("t1"), { ...all, messages: 100 }).length).toBeGreaterThan(97)
  })

  it("never has a call without its result, nor a result without its call, and stays within its limits", () => {
    const part = fc.oneof(
      fc.string({ maxLength: 50 }).map(value => text(value)),
      fc.tuple(fc.constantFrom("a", "b", "c"), fc.boolean()).map(([id, has]) => tool(id, has ? { result: "r" } : {}))
    )
    const turns = fc.array(fc.array(part, { maxLength: 6 }), { minLength: 1, maxLength: 8 })
    fc.assert(
      fc.property(
        turns,
        fc.integer({ min: 1, max: 20 }),
        fc.integer({ min: 10, max: 2000 }),
        (parts, messages, bytes) => {
          const conversation = of(
            ...parts.flatMap((one, index) => [user(`t${index}`, "hi"), agent(`t${index}`, one)]),
            user("now", "now")
          )
          const sent = messagesFor(conversation, turn("now"), { messages, bytes })
          const size = sent.slice(0, -1).reduce((sum, message) => sum + JSON.stringify(message).length + 1, 0)
          expect(sent.length).toBeLessThanOrEqual(messages)
          expect(size).toBeLessThanOrEqual(bytes)
          expect(sent.at(-1)).toMatchObject({ role: "user", content: "now" })
          sent.forEach((message, index) => {
            if (message.role === "tool") {
              const before = sent[index - 1]
              expect(before?.role === "assistant" && before.toolCalls?.[0]?.id).toBe(message.toolCallId)
            }
            if (message.role === "assistant" && message.toolCalls !== undefined) {
              expect(sent[index + 1]).toMatchObject({ role: "tool", toolCallId: message.toolCalls[0]!.id })
            }
          })
          expect(new Set(sent.map(({ id }) => id)).size).toBe(sent.length)
        }
      ),
      { numRuns: times(400) }
    )
  })
})
