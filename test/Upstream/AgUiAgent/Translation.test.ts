/** The events of AG-UI as events of the platform, and as what clients get. */
import { describe, expect, it } from "@effect/vitest"
import { Either, FastCheck as fc } from "effect"
import * as EventMapping from "../../../src/Gateway/EventMapping.ts"
import { Translation } from "../../../src/Upstream/AgUiAgent/Translation.ts"
import { fromFrame } from "../../../src/Upstream/PlatformEvent.ts"
import { times } from "../../Scale.ts"

type Sent = { readonly type: string; readonly [name: string]: unknown }

const decode = (event: Sent) => Either.getOrThrow(fromFrame(JSON.stringify(event)))

/** What clients get of the events of a run. */
const bodies = (translation: Translation, events: ReadonlyArray<Sent>) =>
  events.flatMap(event => translation.add(decode(event))).flatMap(event => EventMapping.map(event).events)

/** What clients get of a stream. */
const run = (...events: ReadonlyArray<Sent>) => bodies(new Translation("turn-1"), events)

const started = { type: "turn_started", turnId: "turn-1" }
const completed = { type: "turn_completed", turnId: "turn-1" }
const begin = { type: "RUN_STARTED", threadId: "t", runId: "turn-1" }
const end = { type: "RUN_FINISHED", threadId: "t", runId: "turn-1" }
const turnId = "turn-1"
const broken = { type: "turn.failed", code: "broken", message: "It broke off", retryable: true }

describe("the events of AG-UI", () => {
  it("are texts and thoughts", () => {
    expect(
      run(
        begin,
        { type: "REASONING_MESSAGE_START", messageId: "r", role: "reasoning" },
        { type: "REASONING_MESSAGE_CONTENT", messageId: "r", delta: "hm" },
        { type: "REASONING_MESSAGE_END", messageId: "r" },
        { type: "TEXT_MESSAGE_START", messageId: "m", role: "assistant" },
        { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "Hel" },
        { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "lo" },
        { type: "TEXT_MESSAGE_END", messageId: "m" },
        end
      )
    ).toEqual([
      started,
      { type: "thinking_start", thinkingId: "r", turnId },
      { type: "thinking_delta", thinkingId: "r", text: "hm", turnId },
      { type: "thinking_end", thinkingId: "r", turnId },
      { type: "text_start", messageId: "m", turnId },
      { type: "text_delta", messageId: "m", text: "Hel", turnId },
      { type: "text_delta", messageId: "m", text: "lo", turnId },
      { type: "text_end", messageId: "m", turnId },
      completed
    ])
  })

  it("may be chunks, whose end is the next event", () => {
    expect(
      run(
        begin,
        { type: "TEXT_MESSAGE_CHUNK", messageId: "m", role: "assistant", delta: "a" },
        { type: "TEXT_MESSAGE_CHUNK", delta: "b" },
        { type: "TOOL_CALL_CHUNK", toolCallId: "c", toolCallName: "look", delta: '{"at":' },
        { type: "TOOL_CALL_CHUNK", toolCallId: "c", delta: "1}" },
        { type: "TOOL_CALL_RESULT", messageId: "x", toolCallId: "c", content: "found" },
        end
      )
    ).toEqual([
      started,
      { type: "text_start", messageId: "m", turnId },
      { type: "text_delta", messageId: "m", text: "a", turnId },
      { type: "text_delta", messageId: "m", text: "b", turnId },
      { type: "text_end", messageId: "m", turnId },
      { type: "tool_call_start", callId: "c", name: "look", turnId },
      { type: "tool_call_delta", callId: "c", text: '{"at":', turnId },
      { type: "tool_call_delta", callId: "c", text: "1}", turnId },
      { type: "tool_call", callId: "c", name: "look", args: { at: 1 }, turnId },
      { type: "tool_result", callId: "c", result: "found", turnId },
      completed
    ])
  })

  it("are calls of tools, with arguments that are no JSON and without any", () => {
    const call = (id: string, ...deltas: ReadonlyArray<string>) => [
      { type: "TOOL_CALL_START", toolCallId: id, toolCallName: "look", parentMessageId: "p" },
      ...deltas.map(delta => ({ type: "TOOL_CALL_ARGS", toolCallId: id, delta })),
      { type: "TOOL_CALL_END", toolCallId: id }
    ]
    const calls = run(begin, ...call("a", "{", "oops"), ...call("b"), end).filter(({ type }) => type === "tool_call")
    expect(calls).toEqual([
      { type: "tool_call", callId: "a", name: "look", turnId },
      { type: "tool_call", callId: "b", name: "look", args: {}, turnId }
    ])
    const failed = { type: "TOOL_CALL_RESULT", messageId: "x", toolCallId: "a", content: "no" }
    expect(run(begin, { ...failed, metadata: { "causeway.error": { code: "gone", message: "no" } } }).slice(1)).toEqual(
      [{ type: "tool_error", callId: "a", code: "gone", message: "no", turnId }]
    )
  })

  it("are steps, state, plans, subagents and usage", () => {
    expect(
      run(
        begin,
        { type: "STEP_STARTED", stepName: "look" },
        { type: "STEP_FINISHED", stepName: "look" },
        { type: "STATE_SNAPSHOT", snapshot: { a: 1 } },
        { type: "STATE_DELTA", delta: [{ op: "replace", path: "/a", value: 2 }] },
        { type: "ACTIVITY_SNAPSHOT", messageId: "p", activityType: "causeway.plan", content: { plan: ["one"] } },
        { type: "SUBAGENT_STARTED", subagentRunId: "s", name: "helper", description: "help" },
        { type: "SUBAGENT_FINISHED", subagentRunId: "s", result: 3 },
        { type: "CUSTOM", name: "causeway.terminal_output", value: { terminalId: "t", text: "$" } },
        { type: "CUSTOM", name: "other", value: { text: "not the agent's" } },
        { type: "RAW", event: { content: "raw" } },
        { ...end, usage: [{ model: "m", inputTokens: 3, cachedInputTokens: 2 }] }
      )
    ).toEqual([
      started,
      { type: "step_started", stepId: "look", title: "look", turnId },
      { type: "step_completed", stepId: "look", title: "look", turnId },
      { type: "state_snapshot", state: { a: 1 }, turnId },
      { type: "state_delta", patch: [{ op: "replace", path: "/a", value: 2 }], turnId },
      { type: "plan_updated", plan: ["one"], turnId },
      { type: "subagent_started", subagentId: "s", agentType: "helper", task: "help", turnId },
      { type: "subagent_completed", subagentId: "s", result: 3, turnId },
      { type: "terminal_output", terminalId: "t", text: "$", turnId },
      { type: "usage_update", model: "m", inputTokens: 3, cacheReadTokens: 2, turnId },
      completed
    ])
  })

  it("are errors, and the end of a turn that was stopped", () => {
    expect(run(begin, { type: "RUN_ERROR", message: "no luck", code: "E1" }, end)).toEqual([
      started,
      { type: "turn_errored", turnId, code: "E1", message: "no luck", retryable: false }
    ])
    expect(run(begin, { ...end, outcome: { type: "cancelled" } })).toEqual([
      started,
      { type: "turn_interrupted", turnId }
    ])
  })

  it("have no end of a call that its result ends", () => {
    const call = [
      { type: "TOOL_CALL_START", toolCallId: "c", toolCallName: "look" },
      { type: "TOOL_CALL_ARGS", toolCallId: "c", delta: '{"at":1}' },
      { type: "TOOL_CALL_RESULT", messageId: "r", toolCallId: "c", content: "found" }
    ]
    for (const events of [[end], [{ type: "TOOL_CALL_END", toolCallId: "c" }, end]]) {
      expect(run(begin, ...call, ...events).slice(3)).toEqual([
        { type: "tool_call", callId: "c", name: "look", args: { at: 1 }, turnId },
        { type: "tool_result", callId: "c", result: "found", turnId },
        completed
      ])
    }
  })

  it("may continue after the end of a run, when tools have run", () => {
    const call = { type: "TOOL_CALL_CHUNK", toolCallId: "c", toolCallName: "look", delta: "{}" }
    const result = { type: "TOOL_CALL_RESULT", messageId: "r", toolCallId: "c", content: "found" }
    const translation = new Translation("turn-1")
    bodies(translation, [begin, call, end])
    expect(translation.state).toEqual({ is: "calling" })
    const custom = { type: "CUSTOM", name: "other", value: {} }
    expect(bodies(translation, [end, custom, { type: "MESSAGES_SNAPSHOT", messages: [] }])).toEqual([])
    expect(translation.state).toEqual({ is: "calling" })
    expect(bodies(translation, [result, end])).toEqual([
      { type: "tool_result", callId: "c", result: "found", turnId },
      completed
    ])
    expect(translation.finish(broken)).toEqual([])
    const other = new Translation("turn-1")
    bodies(other, [begin, call, end])
    expect(other.finish(broken).map(({ type }) => type)).toEqual(["turn.completed"])
  })

  it("end the turn with the stream if only results follow the end of a run", () => {
    const call = { type: "TOOL_CALL_CHUNK", toolCallId: "c", toolCallName: "look", delta: "{}" }
    const result = { type: "TOOL_CALL_RESULT", messageId: "r", toolCallId: "c", content: "found" }
    const translation = new Translation("turn-1")
    bodies(translation, [begin, call, end, result])
    expect(translation.finish(broken).map(({ type }) => type)).toEqual(["turn.completed"])
  })

  it("end the turn with the run if the client runs the tools", () => {
    const call = { type: "TOOL_CALL_CHUNK", toolCallId: "c", toolCallName: "look", delta: "{}" }
    const named = new Translation("turn-1")
    named.begin([], [{ name: "look" }])
    expect(bodies(named, [begin, call, end]).at(-1)).toEqual(completed)
    const outcome = { type: "success", pendingToolCallIds: ["c"] }
    expect(bodies(new Translation("turn-1"), [begin, call, { ...end, outcome }]).at(-1)).toEqual(completed)
  })

  it("may have no ids, or ids that are too long", () => {
    const long = "x".repeat(600)
    const got = run(
      begin,
      { type: "THINKING_TEXT_MESSAGE_START" },
      { type: "THINKING_TEXT_MESSAGE_CONTENT", delta: "hm" },
      { type: "THINKING_TEXT_MESSAGE_END" },
      { type: "TEXT_MESSAGE_START", messageId: long },
      { type: "TEXT_MESSAGE_CONTENT", messageId: long, delta: "e" },
      { type: "TEXT_MESSAGE_START", messageId: "u", role: "user" },
      { type: "TEXT_MESSAGE_CONTENT", messageId: "u", delta: "not the agent's" },
      { type: "TOOL_CALL_START", toolCallId: long, toolCallName: "look" },
      { type: "TOOL_CALL_END", toolCallId: long },
      { type: "TOOL_CALL_RESULT", messageId: "r", toolCallId: long, content: "found" },
      end
    )
    const texts = got.flatMap(event => (event.type === "text_delta" || event.type === "thinking_delta" ? [event] : []))
    expect(texts.map(({ text }) => text)).toEqual(["hm", "e"])
    expect(got.filter(({ type }) => type === "text_start" || type === "thinking_start")).toHaveLength(2)
    const calls = got.flatMap(event => ("callId" in event ? [event.callId] : []))
    expect(calls).toHaveLength(3)
    expect(new Set(calls).size).toBe(1)
  })

  it("are kept within limits, however many calls are open and however long their names are", () => {
    const delta = JSON.stringify({ at: "x".repeat(600_000) })
    const call = (toolCallId: string) => [
      { type: "TOOL_CALL_START", toolCallId, toolCallName: "look" },
      { type: "TOOL_CALL_ARGS", toolCallId, delta }
    ]
    const ids = ["a", "b", "c"]
    const later = [...call("later"), { type: "TOOL_CALL_END", toolCallId: "later" }]
    const ends = ids.map(toolCallId => ({ type: "TOOL_CALL_END", toolCallId }))
    const calls = run(begin, ...ids.flatMap(call), ...ends, ...later).filter(({ type }) => type === "tool_call")
    expect(calls.map(one => "args" in one)).toEqual([true, false, false, true])
    const twice = [...call("a"), ...call("a"), { type: "TOOL_CALL_END", toolCallId: "a" }]
    const after = run(begin, ...twice, ...later).filter(({ type }) => type === "tool_call")
    expect(after.map(one => "args" in one)).toEqual([false, true])

    const long = "x".repeat(100_000)
    const named = run(
      begin,
      { type: "TOOL_CALL_CHUNK", toolCallId: "c", toolCallName: long, delta: "{}" },
      { type: "STEP_STARTED", stepName: long },
      { type: "STEP_FINISHED", stepName: long }
    )
    expect(named.map(({ type }) => type)).toContain("step_completed")
    expect(Math.max(...named.map(event => JSON.stringify(event).length))).toBeLessThan(1000)

    const many = (type: string) =>
      Array.from({ length: 10_005 }, (_, index) => ({ type, toolCallId: `c${index}`, toolCallName: "look" }))
    const complete = run(begin, ...many("TOOL_CALL_START"), ...many("TOOL_CALL_END"))
    expect(complete.filter(({ type }) => type === "tool_call")).toHaveLength(10_000)
  })

  it("of an agent that sends only whole messages become texts; others send them twice", () => {
    const messages = [
      { id: "u1", role: "user", content: "hi" },
      { id: "a1", role: "assistant", content: "before" },
      { id: "u2", role: "user", content: "again" },
      { id: "r2", role: "reasoning", content: "" },
      {
        ...{ id: "a2", role: "assistant", content: "now" },
        toolCalls: [{ id: "c", type: "function", function: { name: "look", arguments: "{}" } }]
      },
      { id: "t2", role: "tool", toolCallId: "c", content: "found" }
    ]
    const snapshot = { type: "MESSAGES_SNAPSHOT", messages }
    const whole = [
      { type: "text_start", messageId: "a2", turnId },
      { type: "text_delta", messageId: "a2", text: "now", turnId },
      { type: "text_end", messageId: "a2", turnId },
      { type: "tool_call_start", callId: "c", name: "look", turnId },
      { type: "tool_call_delta", callId: "c", text: "{}", turnId },
      { type: "tool_call", callId: "c", name: "look", args: {}, turnId },
      { type: "tool_result", callId: "c", result: "found", turnId }
    ]
    expect(run(begin, snapshot, snapshot, end)).toEqual([started, ...whole, completed])
    const empty = ["START", "END"].map(name => ({ type: `TEXT_MESSAGE_${name}`, messageId: "other" }))
    expect(run(begin, ...empty, snapshot, end).slice(3)).toEqual([...whole, completed])
    const streamed = run(
      begin,
      { type: "TEXT_MESSAGE_START", messageId: "other", role: "assistant" },
      { type: "TEXT_MESSAGE_CONTENT", messageId: "other", delta: "now" },
      { type: "TEXT_MESSAGE_END", messageId: "other" },
      snapshot,
      end
    )
    expect(streamed.filter(({ type }) => type === "text_delta")).toHaveLength(1)
  })

  it("of whole messages may have ids of earlier turns, and come several times", () => {
    const snapshot = (...messages: ReadonlyArray<object>) => ({ type: "MESSAGES_SNAPSHOT", messages })
    const old = { id: "a1", role: "assistant" as const, content: "before" }
    const user = { id: "u2", role: "user" as const, content: "again" }
    const texts = (...events: ReadonlyArray<Sent>) => {
      const translation = new Translation("turn-1")
      translation.begin([old, user], [])
      const got = [...bodies(translation, [begin, ...events, end])]
      return got.flatMap(event => (event.type === "text_delta" ? [event.text] : []))
    }
    expect(texts(snapshot(old, user, { ...old, content: "now" }))).toEqual(["now"])
    expect(texts(snapshot(old, user, old))).toEqual(["before"])
    expect(texts(snapshot(user, { ...old, content: "Hel" }), snapshot(user, { ...old, content: "Hello" }))).toEqual([
      "Hello"
    ])
    const call = { type: "TOOL_CALL_CHUNK", toolCallId: "c", toolCallName: "look", delta: "{}" }
    const result = { type: "TOOL_CALL_RESULT", messageId: "r", toolCallId: "c", content: "found" }
    expect(texts(call, result, snapshot(user, { ...old, content: "now" }))).toEqual(["now"])
  })

  it("of whole messages have no call and no result that the agent was sent", () => {
    const call = { id: "c", type: "function" as const, function: { name: "look", arguments: "{}" } }
    const sent = [
      { id: "u1", role: "user" as const, content: "hi" },
      { id: "a1", role: "assistant" as const, toolCalls: [call] },
      { id: "r1", role: "tool" as const, toolCallId: "c", content: "found by the client" }
    ]
    const translation = new Translation("turn-1")
    translation.begin(sent, [{ name: "look" }])
    const snapshot = { type: "MESSAGES_SNAPSHOT", messages: [...sent, { id: "a2", role: "assistant", content: "now" }] }
    expect(bodies(translation, [begin, snapshot, end]).map(({ type }) => type)).toEqual([
      ...["turn_started", "text_start", "text_delta", "text_end", "turn_completed"]
    ])
  })

  it("of whole messages come once, even if the run that continues the turn is sent only the newest ones", () => {
    const user = { id: "u1", role: "user" as const, content: "hi" }
    const before = [
      user,
      { id: "r1", role: "reasoning", content: "hm" },
      { id: "a1", role: "assistant", content: "Ask." }
    ]
    const snapshot = (...messages: ReadonlyArray<object>) => ({ type: "MESSAGES_SNAPSHOT", messages })
    const outcome = { type: "interrupt", interrupts: [{ id: "q", reason: "confirmation" }] }
    const translation = new Translation("turn-1")
    translation.begin([user], [])
    bodies(translation, [begin, snapshot(...before), { ...end, outcome }])
    translation.answer("q", true)
    translation.begin([{ id: "a1", role: "assistant", content: "Ask." }], [])
    const later = bodies(translation, [
      begin,
      snapshot(...before, { id: "a2", role: "assistant", content: "Done." }),
      end
    ])
    expect(later.flatMap(event => ("text" in event ? [event.text] : []))).toEqual(["Done."])
  })

  it("keep the halves of characters", () => {
    const translation = new Translation("turn-1")
    let halves = EventMapping.noHalves
    const texts = [
      begin,
      { type: "TEXT_MESSAGE_START", messageId: "m" },
      { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "\ud83d" },
      { type: "TEXT_MESSAGE_CONTENT", messageId: "m", delta: "\ude00" }
    ].flatMap(event =>
      translation.add(decode(event)).flatMap(platform => {
        const joined = EventMapping.mapJoined(halves, platform, {})
        halves = joined.halves
        return joined.mapped.events.flatMap(body => (body.type === "text_delta" ? [body.text] : []))
      })
    )
    expect(texts).toEqual(["\u{1f600}"])
  })
})

describe("an interrupt", () => {
  const ask = (interrupt: Readonly<Record<string, unknown>>) => {
    const translation = new Translation("turn-1")
    const outcome = { type: "interrupt", interrupts: [interrupt] }
    const events = bodies(translation, [begin, { ...end, outcome }])
    return { translation, asked: events.slice(1) }
  }

  it("is a question or a request for approval by its schema, and the turn continues with the answer", () => {
    const schema = { enum: ["red", "blue"] }
    const question = { id: "q", reason: "input_required", message: "Which?", responseSchema: schema }
    const { asked, translation } = ask(question)
    expect(asked).toEqual([
      { type: "question_requested", requestId: "q", question: "Which?", options: ["red", "blue"], turnId }
    ])
    expect(translation.state.is).toBe("asking")
    expect(translation.answer("other", "red")).toEqual([])
    expect(translation.answer("q", "red").map(({ type }) => type)).toEqual(["question.answered"])
    expect(translation.state).toEqual({
      is: "resuming",
      answers: [{ interruptId: "q", status: "resolved", payload: "red" }]
    })
    expect(translation.answer("q", "blue")).toEqual([])
    translation.begin([], [])
    expect(bodies(translation, [end])).toEqual([completed])
    const approval = {
      ...{ id: "a", reason: "tool_call", message: "Delete it?", toolCallId: "c" },
      responseSchema: { type: "object", properties: { approved: { type: "boolean" } } }
    }
    expect(ask(approval).asked).toEqual([
      { type: "approval_requested", requestId: "a", action: "Delete it?", details: { toolCallId: "c" }, turnId }
    ])
    expect(ask({ id: "a", reason: "confirmation" }).asked).toEqual([
      { type: "approval_requested", requestId: "a", action: "confirmation", turnId }
    ])
  })

  it("may have an approval of any name, if nothing else is asked", () => {
    const asked = (properties: object) => {
      const { translation } = ask({
        id: "a",
        reason: "mastra:tool_suspend",
        responseSchema: { type: "object", properties }
      })
      const [resolved] = translation.answer("a", { approved: false })
      return [resolved?.type, "answers" in translation.state && translation.state.answers[0]?.payload]
    }
    const boolean = { type: "boolean" }
    expect(asked({ confirmed: boolean })).toEqual(["approval.resolved", { approved: false, confirmed: false }])
    expect(asked({ approved: boolean, note: {} })).toEqual(["approval.resolved", { approved: false }])
    expect(asked({ confirmed: boolean, note: {} })[0]).toBe("question.answered")
  })

  it("in a form that is not understood ends the turn", () => {
    expect(ask({ reason: "without an id" }).asked).toEqual([
      expect.objectContaining({ type: "turn_errored", code: "agent_malformed" })
    ])
  })
})

describe("any events", () => {
  const id = fc.constantFrom("a", "b", "", 7, null)
  const types = [
    ...["RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"],
    ...["TEXT_MESSAGE_CHUNK", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_CHUNK"],
    ...["TOOL_CALL_RESULT", "REASONING_MESSAGE_CHUNK", "STEP_STARTED", "STEP_FINISHED", "MESSAGES_SNAPSHOT", "CUSTOM"],
    ...["THINKING_TEXT_MESSAGE_START", "THINKING_TEXT_MESSAGE_CONTENT", "SUBAGENT_STARTED", "constructor", "NEW"]
  ]
  const event = fc.record(
    {
      type: fc.constantFrom(...types),
      messageId: id,
      toolCallId: id,
      toolCallName: id,
      delta: fc.oneof(fc.string(), fc.jsonValue()),
      stepName: id,
      outcome: fc.oneof(fc.constant({ type: "success" }), fc.constant({ type: "interrupt" }), fc.jsonValue()),
      messages: fc.array(
        fc.record({ id, role: fc.constantFrom("user", "assistant", "tool", 3), content: fc.jsonValue() })
      ),
      value: fc.jsonValue()
    },
    { requiredKeys: ["type"] }
  )

  it("have one end, and nothing after it", () => {
    fc.assert(
      fc.property(fc.array(event, { maxLength: 30 }), events => {
        const translation = new Translation("turn-1")
        const all = bodies(translation, events as ReadonlyArray<Sent>)
        const last = [...translation.finish(broken)].flatMap(one => EventMapping.map(one).events)
        const types = [...all, ...last].map(({ type }) => type)
        const isEnd = (type: string) =>
          type === "turn_completed" || type === "turn_errored" || type === "turn_interrupted"
        expect(types.filter(isEnd)).toHaveLength(1)
        expect(isEnd(types.at(-1)!)).toBe(true)
      }),
      { numRuns: times(300) }
    )
  })
})
