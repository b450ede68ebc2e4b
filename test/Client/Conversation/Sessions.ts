/** Events of generated sessions: usual turns, and any events in any order. */
import * as fc from "fast-check"
import type { EventBody, SessionEvent } from "../../../src/Client/SessionModel.ts"
import { allBodies } from "../../../src/Gateway/Protocol/Examples.ts"

/** Numbers bodies as the events of one session. */
export const numbered = (bodies: ReadonlyArray<EventBody>, after = 0): ReadonlyArray<SessionEvent> =>
  bodies.map((body, index) => {
    const seq = after + index + 1
    return { sessionId: "s", seq, timestamp: seq * 10, traceId: "t", ...body }
  })

/** Few ids, so that events meet. */
const id = fc.constantFrom("1", "2")
const text = fc.string({ maxLength: 4 })
const turnId = fc.option(fc.constantFrom("t1", "t2", "t3"), { nil: undefined })
/** What the gateway stores: JSON text has no negative zero. */
const json = fc
  .oneof(fc.jsonValue({ maxDepth: 2 }), fc.constant({ ["__proto__"]: 1, constructor: null }))
  .map((value): unknown => JSON.parse(JSON.stringify(value)))

const idNames = new Set(["messageId", "thinkingId", "callId", "requestId", "terminalId", "stepId", "subagentId"])

/** A body of the type of an example, with other ids and texts. Some optional members are absent. */
const like = (example: EventBody): fc.Arbitrary<EventBody> => {
  const members = Object.entries(example).map(([name, value]): [string, fc.Arbitrary<unknown>] => {
    if (name === "type") return [name, fc.constant(value)]
    if (name === "turnId") return [name, example.type.startsWith("turn_") ? fc.constantFrom("t1", "t2", "t3") : turnId]
    if (idNames.has(name)) return [name, id]
    if (name === "text") return [name, text]
    if (["args", "result", "answer", "details", "plan"].includes(name)) return [name, json]
    return [name, fc.constant(value)]
  })
  return fc.record(Object.fromEntries(members)).map(body => JSON.parse(JSON.stringify(body)) as EventBody)
}

/** Any events in any order. */
export const anyEvents: fc.Arbitrary<ReadonlyArray<SessionEvent>> = fc
  .array(fc.oneof(...(allBodies as ReadonlyArray<EventBody>).map(like)), { maxLength: 60 })
  .map(bodies => numbered(bodies))

/** A turn as agents have it: thoughts, tools and texts, the deltas of which may be mixed. */
const turn = (number: number): fc.Arbitrary<ReadonlyArray<EventBody>> => {
  const ofTurn = { turnId: `turn-${number}` }
  const words = fc.array(text, { minLength: 1, maxLength: 5 })
  const said = (name: string) =>
    words.map((texts): ReadonlyArray<EventBody> => {
      const message = { ...ofTurn, messageId: `${number}-${name}` }
      const deltas = texts.map(text => ({ type: "text_delta" as const, ...message, text }))
      return [{ type: "text_start", ...message }, ...deltas, { type: "text_end", ...message, text: texts.join("") }]
    })
  const thought = words.map((texts): ReadonlyArray<EventBody> => {
    const thinking = { ...ofTurn, thinkingId: `${number}-thought` }
    return [
      { type: "thinking_start", ...thinking },
      ...texts.map(text => ({ type: "thinking_delta" as const, ...thinking, text })),
      { type: "thinking_end", ...thinking }
    ]
  })
  const called = fc.record({ args: json, result: json, fails: fc.boolean() }).map(({ args, fails, result }) => {
    const call = { ...ofTurn, callId: `${number}-call` }
    const written = JSON.stringify(args)
    const end: EventBody = fails
      ? { type: "tool_error", ...call, message: "failed" }
      : { type: "tool_result", ...call, result }
    const events: ReadonlyArray<EventBody> = [
      { type: "tool_call_start", ...call, name: "search" },
      { type: "tool_call_delta", ...call, text: written.slice(0, 3) },
      { type: "tool_call_delta", ...call, text: written.slice(3) },
      { type: "tool_call", ...call, name: "search", args },
      end
    ]
    return events
  })
  const asked = fc.boolean().map((approved): ReadonlyArray<EventBody> => {
    const request = { ...ofTurn, requestId: `${number}-request` }
    return [
      { type: "approval_requested", ...request, action: "write" },
      { type: "approval_resolved", ...request, approved }
    ]
  })
  const end = fc.constantFrom<EventBody>(
    { type: "turn_completed", ...ofTurn },
    { type: "turn_errored", ...ofTurn, code: "failed", message: "It failed", retryable: true },
    { type: "turn_interrupted", ...ofTurn }
  )
  const started: EventBody = { type: "turn_started", ...ofTurn, content: `message ${number}`, sub: "anna" }
  return fc
    .tuple(
      fc.shuffledSubarray([said("a"), thought, called, asked, said("b")]).chain(parts => fc.tuple(...parts)),
      end
    )
    .map(([parts, end]) => [started, ...parts.flat(), end])
}

/** Sessions of usual agents. The last turn may be in progress. */
export const usualEvents: fc.Arbitrary<ReadonlyArray<SessionEvent>> = fc
  .tuple(turn(1), turn(2), turn(3), fc.nat({ max: 5 }))
  .map(([first, second, third, missing]) => {
    const bodies = [...first, ...second, ...third]
    return numbered(bodies.slice(0, bodies.length - missing))
  })
