import { FastCheck as fc, Schema } from "effect"
import { describe, expect, it } from "vitest"
import * as EventMapping from "../../src/Gateway/EventMapping.ts"
import { envelope } from "../../src/Gateway/Protocol/Examples.ts"
import * as Protocol from "../../src/Gateway/Protocol.ts"
import { codePoint } from "../CodePoint.ts"
import { times } from "../Scale.ts"
import { call, cases, failure, h, m, malformed, map, platformCall, t, x } from "./EventMapping/Cases.ts"

const neverMalformed = new Set(["heartbeat", "log", "rate_limited", "error"])

describe("the mapping", () => {
  it("has exactly the types that are tested here", () => {
    const tried = cases.map(([type]) => type)
    expect(tried).toStrictEqual([...EventMapping.platformTypes])
    const maybeMalformed = tried.filter(type => !neverMalformed.has(type) && !type.startsWith("instance."))
    expect(malformed.map(([type]) => type)).toStrictEqual(maybeMalformed)
  })

  it.each(cases)("%s", (type, payload, events) => {
    expect(map(type, payload)).toStrictEqual({ events })
  })

  it("can produce every client event", () => {
    const made = new Set(cases.flatMap(([, , events]) => events.map(event => event.type)))
    expect([...made].sort()).toStrictEqual([...Protocol.eventTypes].sort())
  })

  it.each(malformed)("a malformed %s without text is dropped", (type, payload) => {
    expect(map(type, payload)).toStrictEqual({ events: [], dropped: type, malformed: type })
  })

  it.each(malformed)("a malformed %s with text is text", (type, payload) => {
    const { turnId } = payload
    const named = typeof turnId === "string" && turnId !== "" ? { turnId } : {}
    expect(map(type, { ...payload, content: "words" })).toStrictEqual({
      events: [{ type: "text_delta", ...named, text: "words" }],
      malformed: type
    })
  })

  it.each([
    ["content", { content: "c", text: "t", delta: "d" }, "c"],
    ["text", { text: "t", delta: "d" }, "t"],
    ["delta", { delta: "d" }, "d"],
    ["whichever is text", { content: ["c"], text: "", delta: "d" }, "d"]
  ])("takes the text of an unknown event from %s", (_, payload, text) => {
    expect(map("poem.recited", payload)).toStrictEqual({ events: [{ type: "text_delta", text }] })
    expect(map("poem.recited", { ...payload, turnId: "t1" })).toStrictEqual({
      events: [{ type: "text_delta", turnId: "t1", text }]
    })
  })

  it.each(["poem.recited", "constructor", "__proto__", "toString", "Message.delta", "text_delta"])(
    "drops %s without text and reports it",
    type => {
      for (const payload of [
        {},
        { content: "" },
        { content: null },
        { text: { text: "deep" } },
        { deep: { text: "x" } }
      ]) {
        expect(map(type, payload)).toStrictEqual({ events: [], dropped: type })
      }
    }
  )

  it("does not read text from the prototype", () => {
    const payload: unknown = JSON.parse('{"type":"poem","__proto__":{"content":"inherited"}}')
    expect(EventMapping.map({ type: "poem", payload: Object(payload) })).toStrictEqual({ events: [], dropped: "poem" })
  })
})

const numRuns = times(300)

describe("the turn of an event", () => {
  it("is the one in progress if the event names none", () => {
    expect(map("turn.completed", {}, { turnId: "t9" }).events).toStrictEqual([{ type: "turn_completed", turnId: "t9" }])
    expect(map("usage", { inputTokens: 1 }, { turnId: "t9" }).events).toMatchObject([{ turnId: "t9" }])
    expect(map("poem", { text: "x" }, { turnId: "t9" }).events).toMatchObject([{ turnId: "t9" }])
  })

  it("is the one that the event names, if any", () => {
    expect(map("turn.completed", t, { turnId: "t9" }).events).toMatchObject([{ turnId: "t1" }])
    expect(map("message.delta", { ...m, delta: "x" }, { turnId: "t9" }).events).toMatchObject([{ turnId: "t1" }])
  })

  it("is not guessed if the event names an invalid one", () => {
    const mapped = map("message.delta", { ...m, turnId: 7, delta: "x" }, { turnId: "t9" })
    expect(mapped).toStrictEqual({
      events: [{ type: "text_delta", messageId: "m1", text: "x" }],
      malformed: "message.delta"
    })
    expect(map("turn.completed", { turnId: 7 }, { turnId: "t9" })).toMatchObject({
      events: [],
      dropped: "turn.completed"
    })
  })

  it("is not a field of a session's state", () => {
    const [state, error] = map("instance.failed", failure, { turnId: "t9" }).events
    expect(state).not.toHaveProperty("turnId")
    expect(error).toHaveProperty("turnId", "t9")
  })
})

describe("invalid fields", () => {
  it("an invalid optional field is dropped and reported", () => {
    expect(map("tool.progress", { ...platformCall, message: "half", progress: "0.5" })).toStrictEqual({
      events: [{ type: "tool_progress", ...call, message: "half" }],
      malformed: "tool.progress"
    })
    expect(map("file.created", { path: "a", size: -1, hash: 5, iteration: 1.5 })).toStrictEqual({
      events: [{ type: "file_changed", change: "created", path: "a" }],
      malformed: "file.created"
    })
  })

  it("never prevents the end of a turn", () => {
    expect(map("turn.cancelled", { ...t, reason: 5 }).events).toStrictEqual([{ type: "turn_interrupted", ...t }])
    expect(map("turn.failed", { ...t, code: 500, message: null, retryable: "no" })).toStrictEqual({
      events: [{ type: "turn_errored", ...t, code: "turn_failed", message: "The turn failed", retryable: false }],
      malformed: "turn.failed"
    })
  })

  it("null counts as absent", () => {
    expect(map("message.start", { ...m, role: null })).toStrictEqual({ events: [{ type: "text_start", ...m }] })
    expect(map("message.delta", { ...m, text: null, delta: "x" })).toStrictEqual({
      events: [{ type: "text_delta", ...m, text: "x" }]
    })
  })

  it("null is kept where any JSON value is allowed", () => {
    expect(map("tool.result", { ...platformCall, output: null }).events).toStrictEqual([
      { type: "tool_result", ...call, result: null }
    ])
  })
})

describe("other spellings", () => {
  it.each([
    ["turn.failed", { ...t, error: "boom" }, { code: "turn_failed", message: "boom", retryable: false }],
    ["turn.failed", { ...t, error: { code: "x", message: "boom", retryable: true } }, { code: "x", message: "boom" }],
    ["error", { error: { message: "boom" } }, { code: "agent_error", message: "boom" }],
    ["error", {}, { code: "agent_error", message: "The agent reported an error" }],
    ["tool.call", { callId: "c1", name: "n", args: 1 }, { callId: "c1", name: "n", args: 1 }],
    ["file.renamed", { from: "a", to: "b" }, { path: "b", previousPath: "a" }],
    ["usage", { promptTokens: 1, completionTokens: 2 }, { inputTokens: 1, outputTokens: 2 }]
  ])("of %s are understood: %j", (type, payload, event) => {
    const mapped = map(type, payload)
    expect(mapped.events).toMatchObject([event])
    expect(mapped.malformed).toBeUndefined()
  })
})

describe("usage", () => {
  it("has only the figures of the platform", () => {
    expect(map("usage", { inputTokens: 1 }).events).toStrictEqual([{ type: "usage_update", inputTokens: 1 }])
    expect(map("usage", { used: 1, limit: 3 }).events).toStrictEqual([
      { type: "usage_context", used: 1, limit: 3, percent: 33.33 }
    ])
  })

  it.each([
    [0, 200_000, 0],
    [200_000, 200_000, 100],
    [300_000, 200_000, 150],
    [1, 3, 33.33],
    [Number.MAX_SAFE_INTEGER, 1, 900_719_925_474_099_100]
  ])("%d of %d is %d percent", (used, limit, percent) => {
    expect(map("usage", { used, limit, percent: 12 }).events).toStrictEqual([
      { type: "usage_context", used, limit, percent }
    ])
  })

  it("reports an invalid context with valid figures", () => {
    for (const context of [{ used: 1 }, { used: 1, limit: 0 }, { used: "1", limit: 2 }, { limit: -1 }]) {
      expect(map("usage", { inputTokens: 1, ...context })).toStrictEqual({
        events: [{ type: "usage_update", inputTokens: 1 }],
        malformed: "usage"
      })
    }
  })
})

describe("large payloads", () => {
  const big = EventMapping.longestDelta

  it.each([
    ["message.delta", m],
    ["thinking.delta", h],
    ["tool.call.delta", platformCall],
    ["terminal.output", x],
    ["poem.recited", t]
  ])("of %s come in several deltas that are the text together", (type, payload) => {
    for (const text of ["x".repeat(big), "x".repeat(big + 1), "x".repeat(3 * big), `x${"😀".repeat(big)}`]) {
      const { events } = map(type, { ...payload, delta: text })
      const texts = events.map(event => ("text" in event ? String(event.text) : ""))
      expect(texts.join("")).toBe(text)
      expect(Math.max(...texts.map(({ length }) => length))).toBeLessThanOrEqual(big)
      expect(texts.every(piece => piece.isWellFormed() && piece !== "")).toBe(true)
      expect(events.length).toBe(Math.ceil(text.length / big))
    }
  })

  it("keep an empty delta", () => {
    expect(map("message.delta", { ...m, delta: "" }).events).toStrictEqual([{ type: "text_delta", ...m, text: "" }])
  })

  it("are not split if they cannot be", () => {
    const text = "x".repeat(3 * big)
    expect(map("message.complete", { ...m, content: text }).events).toStrictEqual([{ type: "text_end", ...m, text }])
  })

  it("with too many levels are malformed", () => {
    const nested = (levels: number): unknown => JSON.parse(`${"[".repeat(levels)}${"]".repeat(levels)}`)
    const mapped = (levels: number) =>
      EventMapping.map({ type: "state.snapshot", payload: { type: "state.snapshot", state: nested(levels) } })
    expect(mapped(256)).not.toHaveProperty("malformed")
    for (const levels of [257, 500_000])
      expect(mapped(levels)).toMatchObject({ events: [], malformed: "state.snapshot" })
  })
})

describe("any input", () => {
  const known = cases.flatMap(([, payload]) => Object.entries(payload))
  const names = [...new Set(known.map(([name]) => name)), "content", "text", "error", "context", "__proto__", "id"]
  const value = fc.oneof(
    fc.constantFrom<unknown>(...known.map(([, value]) => value)),
    fc.jsonValue({ maxDepth: 3 }),
    fc.string({ unit: codePoint })
  )
  const payload = fc.dictionary(fc.oneof(fc.constantFrom(...names), fc.string()), value)
  const type = fc.oneof(
    { weight: 5, arbitrary: fc.constantFrom(...EventMapping.platformTypes) },
    fc.constantFrom("constructor", "__proto__", "poem.recited"),
    fc.string({ minLength: 1, maxLength: 256 })
  )
  const situation = fc.record({ turnId: fc.option(fc.string({ minLength: 1, maxLength: 256 }), { nil: undefined }) })

  it("becomes valid events, or is reported", () => {
    fc.assert(
      fc.property(type, payload, situation, (type, payload, situation) => {
        const { events, ...reports } = map(type, payload, situation)
        for (const body of events) {
          const event = Protocol.event(envelope, body)
          const text = Protocol.encode(event)
          expect(text.startsWith(`{"type":"${body.type}"`)).toBe(true)
          expect(Schema.decodeUnknownSync(Protocol.Event)(JSON.parse(text))).toStrictEqual(event)
        }
        const isSilent = type === "heartbeat" || type === "log"
        expect("dropped" in reports).toBe(events.length === 0 && !isSilent)
        for (const reported of Object.values(reports)) expect(reported).toBe(type)
        if ("malformed" in reports) expect(EventMapping.platformTypes).toContain(type)
      }),
      { numRuns }
    )
  })

  it("is mapped the same with additional unknown fields", () => {
    const others = fc.dictionary(
      fc.string().map(name => `_${name}`),
      fc.jsonValue({ maxDepth: 2 })
    )
    fc.assert(
      fc.property(fc.constantFrom(...cases), others, ([type, payload, events], others) => {
        expect(map(type, { ...others, ...payload })).toStrictEqual({ events })
      }),
      { numRuns }
    )
  })
})
