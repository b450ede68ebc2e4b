import { FastCheck as fc, Schema } from "effect"
import { describe, expect, it } from "vitest"
import * as EventMapping from "../../src/Gateway/EventMapping.ts"
import { envelope } from "../../src/Gateway/Protocol/Examples.ts"
import * as Protocol from "../../src/Gateway/Protocol.ts"
import * as PlatformEvent from "../../src/Upstream/PlatformEvent.ts"

const numRuns = 300 * Number(process.env.SOAK ?? 1)

type Payload = Readonly<Record<string, unknown>>

/** Maps an event as it comes over the wire. */
const map = (type: string, payload: Payload = {}, situation?: EventMapping.Situation): EventMapping.Mapped => {
  const frame = JSON.stringify({ id: "e1", timestamp: 1, ...payload, type })
  const read = PlatformEvent.fromFrame(frame)
  if (read._tag === "Left") throw new Error(read.left)
  return EventMapping.map(read.right, situation)
}

const t = { turnId: "t1" }
const m = { ...t, messageId: "m1" }
const h = { ...t, thinkingId: "h1" }
const x = { ...t, terminalId: "x1" }
const platformCall = { ...t, toolCallId: "c1" }
const call = { ...t, callId: "c1" }
const request = { ...t, requestId: "r1" }
const file = { iteration: 2, size: 10, hash: "abc" }
const failure = { code: "broken", message: "It broke", retryable: true }

/** Each platform type of the design: what comes, and what it becomes. */
const cases: ReadonlyArray<readonly [string, Payload, ReadonlyArray<Payload>]> = [
  ["instance.starting", { instanceId: "i1" }, [{ type: "session_state", state: "activating" }]],
  ["instance.ready", { instanceId: "i1" }, [{ type: "session_state", state: "active" }]],
  ["instance.stopping", { reason: "asked" }, [{ type: "session_state", state: "deactivating", reason: "asked" }]],
  ["instance.stopped", { message: "bye" }, [{ type: "session_state", state: "inactive", reason: "bye" }]],
  [
    "instance.failed",
    failure,
    [
      { type: "session_state", state: "error", reason: "It broke" },
      { type: "error", ...failure }
    ]
  ],
  ["heartbeat", {}, []],
  ["log", { level: "info", message: "hello", content: "hello" }, []],
  ["turn.started", t, [{ type: "turn_started", ...t }]],
  ["turn.completed", t, [{ type: "turn_completed", ...t }]],
  ["turn.failed", { ...t, ...failure }, [{ type: "turn_errored", ...t, ...failure }]],
  ["turn.cancelled", { ...t, reason: "asked" }, [{ type: "turn_interrupted", ...t, reason: "asked" }]],
  ["message.start", { ...m, role: "assistant" }, [{ type: "text_start", ...m, role: "assistant" }]],
  ["message.delta", { ...m, delta: "hel" }, [{ type: "text_delta", ...m, text: "hel" }]],
  ["message.complete", { ...m, content: "hello" }, [{ type: "text_end", ...m, text: "hello" }]],
  ["thinking.start", h, [{ type: "thinking_start", ...h }]],
  ["thinking.delta", { ...h, delta: "hm" }, [{ type: "thinking_delta", ...h, text: "hm" }]],
  ["thinking.complete", { ...h, content: "hm." }, [{ type: "thinking_end", ...h, text: "hm." }]],
  ["tool.call.start", { ...platformCall, name: "grep" }, [{ type: "tool_call_start", ...call, name: "grep" }]],
  ["tool.call.delta", { ...platformCall, delta: '{"a"' }, [{ type: "tool_call_delta", ...call, text: '{"a"' }]],
  [
    "tool.call",
    { ...platformCall, name: "grep", input: { a: 1 } },
    [{ type: "tool_call", ...call, name: "grep", args: { a: 1 } }]
  ],
  [
    "tool.progress",
    { ...platformCall, message: "half", progress: 0.5 },
    [{ type: "tool_progress", ...call, message: "half", progress: 0.5 }]
  ],
  ["tool.result", { ...platformCall, output: [1] }, [{ type: "tool_result", ...call, result: [1] }]],
  ["tool.error", { ...platformCall, message: "no" }, [{ type: "tool_error", ...call, message: "no" }]],
  [
    "question.asked",
    { ...request, question: "Which?", options: ["a", "b"] },
    [{ type: "question_requested", ...request, question: "Which?", options: ["a", "b"] }]
  ],
  ["question.answered", { ...request, answer: "a" }, [{ type: "question_resolved", ...request, answer: "a" }]],
  [
    "approval.requested",
    { ...request, action: "run", description: "rm", input: { c: 1 } },
    [{ type: "approval_requested", ...request, action: "run", description: "rm", details: { c: 1 } }]
  ],
  ["approval.resolved", { ...request, approved: false }, [{ type: "approval_resolved", ...request, approved: false }]],
  [
    "terminal.opened",
    { ...x, command: "ls", cwd: "/w" },
    [{ type: "terminal_opened", ...x, command: "ls", cwd: "/w" }]
  ],
  [
    "terminal.output",
    { ...x, stream: "stderr", data: "oh\n" },
    [{ type: "terminal_output", ...x, stream: "stderr", text: "oh\n" }]
  ],
  ["terminal.exited", { ...x, exitCode: -1 }, [{ type: "terminal_exited", ...x, exitCode: -1 }]],
  ["file.created", { path: "a", ...file }, [{ type: "file_changed", change: "created", path: "a", ...file }]],
  ["file.modified", { path: "a", ...file }, [{ type: "file_changed", change: "modified", path: "a", ...file }]],
  ["file.deleted", { path: "a" }, [{ type: "file_changed", change: "deleted", path: "a" }]],
  [
    "file.renamed",
    { from: "a", path: "b", ...file },
    [{ type: "file_changed", change: "renamed", path: "b", previousPath: "a", ...file }]
  ],
  ["plan.updated", { ...t, plan: [{ id: 1 }] }, [{ type: "plan_updated", ...t, plan: [{ id: 1 }] }]],
  ["step.started", { ...t, stepId: "s", title: "S" }, [{ type: "step_started", ...t, stepId: "s", title: "S" }]],
  [
    "step.completed",
    { ...t, stepId: "s", status: "done" },
    [{ type: "step_completed", ...t, stepId: "s", status: "done" }]
  ],
  [
    "subagent.started",
    { ...t, subagentId: "g", agentType: "reader" },
    [{ type: "subagent_started", ...t, subagentId: "g", agentType: "reader" }]
  ],
  [
    "subagent.completed",
    { ...t, subagentId: "g", result: null },
    [{ type: "subagent_completed", ...t, subagentId: "g", result: null }]
  ],
  [
    "artifact.created",
    { ...t, artifactId: "f", name: "r.md", mimeType: "text/markdown", uri: "w:r.md" },
    [{ type: "artifact_created", ...t, artifactId: "f", name: "r.md", mimeType: "text/markdown", uri: "w:r.md" }]
  ],
  [
    "checkpoint.created",
    { ...t, checkpointId: "k", label: "L" },
    [{ type: "checkpoint_created", ...t, checkpointId: "k", label: "L" }]
  ],
  ["state.snapshot", { ...t, state: { n: 1 } }, [{ type: "state_snapshot", ...t, state: { n: 1 } }]],
  ["state.delta", { ...t, patch: [{ op: "remove" }] }, [{ type: "state_delta", ...t, patch: [{ op: "remove" }] }]],
  [
    "usage",
    { ...t, inputTokens: 100, outputTokens: 20, used: 120, limit: 90_000 },
    [
      { type: "usage_update", ...t, inputTokens: 100, outputTokens: 20 },
      { type: "usage_context", ...t, used: 120, limit: 90_000, percent: 0.13 }
    ]
  ],
  ["rate_limited", { ...t, retryAfterMs: 1000 }, [{ type: "rate_limited", ...t, retryAfterMs: 1000 }]],
  ["error", { ...t, ...failure }, [{ type: "error", ...t, ...failure }]]
]

/** A payload that lacks what each type cannot do without; the others cannot be malformed. */
const malformed: ReadonlyArray<readonly [string, Payload]> = [
  ["turn.started", {}],
  ["turn.completed", { turnId: 7 }],
  ["turn.failed", { ...failure, turnId: null }],
  ["turn.cancelled", { turnId: "" }],
  ["message.start", { messageId: 7 }],
  ["message.delta", { messageId: 7, delta: ["hel"] }],
  ["message.complete", { messageId: "x".repeat(257) }],
  ["thinking.start", { thinkingId: {} }],
  ["thinking.delta", t],
  ["thinking.complete", t],
  ["tool.call.start", platformCall],
  ["tool.call.delta", t],
  ["tool.call", { ...platformCall, name: 5 }],
  ["tool.progress", { progress: 1 }],
  ["tool.result", { output: 1 }],
  ["tool.error", { message: "no" }],
  ["question.asked", request],
  ["question.answered", { answer: "a" }],
  ["approval.requested", request],
  ["approval.resolved", { ...request, approved: "yes" }],
  ["terminal.opened", { command: "ls" }],
  ["terminal.output", t],
  ["terminal.exited", { exitCode: 0 }],
  ["file.created", { path: null }],
  ["file.modified", { path: "" }],
  ["file.deleted", {}],
  ["file.renamed", { from: "a" }],
  ["plan.updated", t],
  ["step.started", { title: "S" }],
  ["step.completed", { status: "done" }],
  ["subagent.started", { subagentId: 1 }],
  ["subagent.completed", {}],
  ["artifact.created", { name: "r.md" }],
  ["checkpoint.created", { label: "L" }],
  ["state.snapshot", t],
  ["state.delta", t],
  ["usage", { inputTokens: "many", used: -1, limit: 0 }]
]

const neverMalformed = new Set(["heartbeat", "log", "rate_limited", "error"])

describe("the mapping", () => {
  it("knows the types that are tried here, and no others", () => {
    const tried = cases.map(([type]) => type)
    expect(tried).toStrictEqual([...EventMapping.platformTypes])
    const maybeMalformed = tried.filter(type => !neverMalformed.has(type) && !type.startsWith("instance."))
    expect(malformed.map(([type]) => type)).toStrictEqual(maybeMalformed)
  })

  it.each(cases)("%s", (type, payload, events) => {
    expect(map(type, payload)).toStrictEqual({ events })
  })

  it("makes every event that clients know of", () => {
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
    "drops %s without text and tells so",
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

  it("does not take a name from the prototype for text", () => {
    const payload: unknown = JSON.parse('{"type":"poem","__proto__":{"content":"inherited"}}')
    expect(EventMapping.map({ type: "poem", payload: Object(payload) })).toStrictEqual({ events: [], dropped: "poem" })
  })
})

describe("the turn of an event", () => {
  it("is the one in progress where the event names none", () => {
    expect(map("turn.completed", {}, { turnId: "t9" }).events).toStrictEqual([{ type: "turn_completed", turnId: "t9" }])
    expect(map("usage", { inputTokens: 1 }, { turnId: "t9" }).events).toMatchObject([{ turnId: "t9" }])
    expect(map("poem", { text: "x" }, { turnId: "t9" }).events).toMatchObject([{ turnId: "t9" }])
  })

  it("is the one that the event names, if any", () => {
    expect(map("turn.completed", t, { turnId: "t9" }).events).toMatchObject([{ turnId: "t1" }])
    expect(map("message.delta", { ...m, delta: "x" }, { turnId: "t9" }).events).toMatchObject([{ turnId: "t1" }])
  })

  it("is not guessed where the event names one that cannot be", () => {
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

  it("is no field of a session's state", () => {
    const [state, error] = map("instance.failed", failure, { turnId: "t9" }).events
    expect(state).not.toHaveProperty("turnId")
    expect(error).toHaveProperty("turnId", "t9")
  })
})

describe("what is wrong in parts", () => {
  it("is left out where the event can do without it, and reported", () => {
    expect(map("tool.progress", { ...platformCall, message: "half", progress: "0.5" })).toStrictEqual({
      events: [{ type: "tool_progress", ...call, message: "half" }],
      malformed: "tool.progress"
    })
    expect(map("file.created", { path: "a", size: -1, hash: 5, iteration: 1.5 })).toStrictEqual({
      events: [{ type: "file_changed", change: "created", path: "a" }],
      malformed: "file.created"
    })
  })

  it("never keeps a turn from its end", () => {
    expect(map("turn.cancelled", { ...t, reason: 5 }).events).toStrictEqual([{ type: "turn_interrupted", ...t }])
    expect(map("turn.failed", { ...t, code: 500, message: null, retryable: "no" })).toStrictEqual({
      events: [{ type: "turn_errored", ...t, code: "turn_failed", message: "The turn failed", retryable: false }],
      malformed: "turn.failed"
    })
  })

  it("is not null, which many print for what is absent", () => {
    expect(map("message.start", { ...m, role: null })).toStrictEqual({ events: [{ type: "text_start", ...m }] })
    expect(map("message.delta", { ...m, text: null, delta: "x" })).toStrictEqual({
      events: [{ type: "text_delta", ...m, text: "x" }]
    })
  })

  it("keeps null where any JSON value may stand", () => {
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
    ["error", {}, { code: "agent_error", message: "The agent met an error" }],
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
  it("tells only what the platform tells", () => {
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

  it("reports a context that makes no sense beside figures that do", () => {
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

  it("are whole where they cannot be cut", () => {
    const text = "x".repeat(3 * big)
    expect(map("message.complete", { ...m, content: text }).events).toStrictEqual([{ type: "text_end", ...m, text }])
  })

  it("of too many levels are malformed", () => {
    const nested = (levels: number): unknown => JSON.parse(`${"[".repeat(levels)}${"]".repeat(levels)}`)
    const mapped = (levels: number) =>
      EventMapping.map({ type: "state.snapshot", payload: { type: "state.snapshot", state: nested(levels) } })
    expect(mapped(256)).not.toHaveProperty("malformed")
    for (const levels of [257, 500_000])
      expect(mapped(levels)).toMatchObject({ events: [], malformed: "state.snapshot" })
  })
})

describe("whatever arrives", () => {
  const known = cases.flatMap(([, payload]) => Object.entries(payload))
  const names = [...new Set(known.map(([name]) => name)), "content", "text", "error", "context", "__proto__", "id"]
  const value = fc.oneof(
    fc.constantFrom<unknown>(...known.map(([, value]) => value)),
    fc.jsonValue({ maxDepth: 3 }),
    fc.string({ unit: "binary" })
  )
  const payload = fc.dictionary(fc.oneof(fc.constantFrom(...names), fc.string()), value)
  const type = fc.oneof(
    { weight: 5, arbitrary: fc.constantFrom(...EventMapping.platformTypes) },
    fc.constantFrom("constructor", "__proto__", "poem.recited"),
    fc.string({ minLength: 1, maxLength: 256 })
  )
  const situation = fc.record({ turnId: fc.option(fc.string({ minLength: 1, maxLength: 256 }), { nil: undefined }) })

  it("becomes events that clients understand, or is told of", () => {
    fc.assert(
      fc.property(type, payload, situation, (type, payload, situation) => {
        const { events, ...told } = map(type, payload, situation)
        for (const body of events) {
          const event = Protocol.event(envelope, body)
          expect(JSON.parse(Protocol.encode(event))).toStrictEqual(JSON.parse(JSON.stringify(event)))
          expect(Schema.decodeUnknownSync(Protocol.Event)(JSON.parse(Protocol.encode(event)))).toBeDefined()
        }
        const isSilent = type === "heartbeat" || type === "log"
        expect("dropped" in told).toBe(events.length === 0 && !isSilent)
        for (const reported of Object.values(told)) expect(reported).toBe(type)
        if ("malformed" in told) expect(EventMapping.platformTypes).toContain(type)
      }),
      { numRuns }
    )
  })

  it("is understood all the same with fields that nobody knows beside it", () => {
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
