/**
 * The rules by which platform events become client events: field by field, checked by the schema of the client event.
 */
import { Option, Schema, SchemaAST } from "effect"
import { EventBody, type EventBodyOf, type EventType } from "../Protocol/Event.ts"

/** The fields of a platform event, as parsed from JSON. */
export type Payload = Readonly<Record<string, unknown>>

/** The context of a mapping. */
export interface Situation {
  /** The turn in progress. Events without a turn id belong to it. */
  readonly turnId?: string | undefined
}

/** Client events, and whether every field of the payload was valid. */
interface Outcome {
  readonly events: ReadonlyArray<EventBody>
  readonly isWhole: boolean
}

/** Maps a payload; none if a required field is missing or invalid. */
export type Rule = (payload: Payload, situation: Situation) => Option.Option<Outcome>

/** The source of a field. */
interface Source {
  /** Other members of the payload. The first valid one is used; a dot separates the members of a path. */
  readonly names: ReadonlyArray<string>
  /** Used if no member is valid. */
  readonly fallback: Option.Option<unknown>
  /** Whether the payload is ignored. */
  readonly isFixed: boolean
}

/** The field has other names at the platform. */
const from = (...names: ReadonlyArray<string>): Source => ({ names, fallback: Option.none(), isFixed: false })

/** The field has a default. */
const orElse = (fallback: unknown, ...names: ReadonlyArray<string>): Source => ({
  names,
  fallback: Option.some(fallback),
  isFixed: false
})

/** The field always has this value. */
const always = (value: unknown): Source => ({ names: [], fallback: Option.some(value), isFixed: true })

const own = (value: unknown, name: string): unknown =>
  typeof value === "object" && value !== null && Object.hasOwn(value, name) ? Reflect.get(value, name) : undefined

/** The field is never taken from the platform. */
const never: Source = { names: [], fallback: Option.none(), isFixed: true }

interface Field {
  readonly name: string
  readonly paths: ReadonlyArray<ReadonlyArray<string>>
  readonly fallback: Option.Option<unknown>
  readonly isOptional: boolean
  readonly accepts: (u: unknown) => boolean
}

const fieldOf =
  (sources: Readonly<Record<string, Source | undefined>>) =>
  ({ name, type, isOptional }: SchemaAST.PropertySignature): Field => {
    const source = sources[String(name)] ?? from()
    const accepts = Schema.is(Schema.make(type))
    if (!Option.match(source.fallback, { onNone: () => true, onSome: accepts })) {
      throw new TypeError(`The fallback of ${String(name)} does not match its schema`)
    }
    return {
      name: String(name),
      paths: source.isFixed ? [] : [[String(name)], ...source.names.map(path => path.split("."))],
      fallback: source.fallback,
      isOptional,
      accepts
    }
  }

const read = ({ paths, accepts }: Field, payload: Payload): { readonly value: unknown; readonly isWrong: boolean } => {
  let isWrong = false
  for (const path of paths) {
    const value = path.reduce<unknown>(own, payload)
    if (value === undefined) continue
    if (accepts(value)) return { value, isWrong: false }
    // Many serializers write null for an absent field.
    isWrong ||= value !== null
  }
  return { value: undefined, isWrong }
}

/**
 * The rule that makes one client event. A field is taken from the member with its own name, or else from its source in
 * `sources`. An invalid field is left out if it is optional; otherwise the payload is malformed.
 */
const to = <Type extends EventType>(
  type: Type,
  sources: { readonly [Name in Exclude<keyof EventBodyOf<Type>, "type">]?: Source } = {}
): Rule => {
  const body = EventBody.members.find(({ fields }) => fields.type.literals[0] === type)!
  const fields = SchemaAST.getPropertySignatures(body.ast).map(fieldOf({ ...sources, type: always(type) }))
  return (payload, { turnId }) => {
    const event: Record<string, unknown> = {}
    let isWhole = true
    for (const field of fields) {
      const { value, isWrong } = read(field, payload)
      if (isWrong) isWhole = false
      if (value !== undefined) event[field.name] = value
      else if (Option.isSome(field.fallback)) event[field.name] = field.fallback.value
      else if (field.name === "turnId" && !isWrong && field.accepts(turnId)) event[field.name] = turnId
      else if (!field.isOptional) return Option.none()
    }
    // No body has a filter on the whole, so that checking the fields is enough.
    return Option.some({ events: [event as EventBody], isWhole })
  }
}

/** The rule for events that are not sent to clients. */
const nothing: Rule = () => Option.some({ events: [], isWhole: true })

/** The events of several rules, all of which must succeed. */
const all =
  (...rules: ReadonlyArray<Rule>): Rule =>
  (payload, situation) =>
    Option.map(Option.all(rules.map(rule => rule(payload, situation))), joined)

/** Joins outcomes into one. */
const joined = (outcomes: ReadonlyArray<Outcome>): Outcome => ({
  events: outcomes.flatMap(({ events }) => events),
  isWhole: outcomes.every(({ isWhole }) => isWhole)
})

const text = from("delta", "content")
const callId = from("toolCallId")
const reason = from("message")

/** The fields of an error, at the top level or in `error`. */
const problem = (code: string, message: string) => ({
  code: orElse(code, "error.code"),
  message: orElse(message, "error.message", "error", "reason"),
  retryable: orElse(false, "error.retryable")
})

const tokenUsage = to("usage_update", {
  inputTokens: from("promptTokens"),
  outputTokens: from("completionTokens"),
  cacheReadTokens: from("cachedInputTokens"),
  cacheWriteTokens: from("cacheWriteInputTokens"),
  costUsd: from("cost")
})

const envelope: ReadonlySet<string> = new Set(["type", "turnId"])

/** Token counts and costs, if there are any. */
const tokenUsageIfAny: Rule = (payload, situation) =>
  Option.filter(tokenUsage(payload, situation), ({ events }) =>
    events.some(event => Object.keys(event).some(name => !envelope.has(name)))
  )

const contextUsage = to("usage_context", {
  used: from("contextUsed", "context.used"),
  limit: from("contextLimit", "context.limit"),
  // Replaced by the percentage of `used` and `limit`.
  percent: orElse(0)
})

const percentOf = (used: number, limit: number): number => Math.round((used / limit) * 10_000) / 100

const contextUsageWithPercent: Rule = (payload, situation) =>
  Option.map(contextUsage(payload, situation), ({ events, isWhole }) => ({
    events: events.map(event =>
      event.type === "usage_context" ? { ...event, percent: percentOf(event.used, event.limit) } : event
    ),
    isWhole
  }))

const contextNames = ["used", "limit", "contextUsed", "contextLimit", "context"]

/** Whether the payload is about the context window at all. */
const mentionsContext = (payload: Payload): boolean =>
  contextNames.some(name => Object.hasOwn(payload, name) && payload[name] !== null)

/** Usage, how full the context window is, or both. */
const usage: Rule = (payload, situation) => {
  const spent = tokenUsageIfAny(payload, situation)
  const full = contextUsageWithPercent(payload, situation)
  if (Option.isNone(full)) {
    return Option.map(spent, ({ events, isWhole }) => ({ events, isWhole: isWhole && !mentionsContext(payload) }))
  }
  return Option.isNone(spent) ? full : Option.some(joined([spent.value, full.value]))
}

const rules = {
  "instance.starting": to("session_state", { state: always("activating"), reason }),
  "instance.ready": to("session_state", { state: always("active"), reason }),
  "instance.stopping": to("session_state", { state: always("deactivating"), reason }),
  "instance.stopped": to("session_state", { state: always("inactive"), reason }),
  "instance.failed": all(
    to("session_state", { state: always("error"), reason: from("message", "error.message", "error") }),
    to("error", problem("instance_failed", "The agent instance failed"))
  ),
  heartbeat: nothing,
  log: nothing,

  // Only the gateway knows the author and the content of a message.
  "turn.started": to("turn_started", { content: never, sub: never, clientMessageId: never }),
  "turn.completed": to("turn_completed"),
  "turn.failed": to("turn_errored", problem("turn_failed", "The turn failed")),
  "turn.cancelled": to("turn_interrupted", { reason }),

  "message.start": to("text_start"),
  "message.delta": to("text_delta", { text }),
  "message.complete": to("text_end", { text: from("content") }),
  "thinking.start": to("thinking_start"),
  "thinking.delta": to("thinking_delta", { text }),
  "thinking.complete": to("thinking_end", { text: from("content") }),

  "tool.call.start": to("tool_call_start", { callId }),
  "tool.call.delta": to("tool_call_delta", { callId, text }),
  "tool.call": to("tool_call", { callId, args: from("input", "arguments") }),
  "tool.progress": to("tool_progress", { callId }),
  "tool.result": to("tool_result", { callId, result: from("output", "content") }),
  "tool.error": to("tool_error", {
    callId,
    code: from("error.code"),
    message: orElse("The tool failed", "error.message", "error")
  }),

  "question.asked": to("question_requested"),
  "question.answered": to("question_resolved"),
  "approval.requested": to("approval_requested", { details: from("input") }),
  "approval.resolved": to("approval_resolved"),

  "terminal.opened": to("terminal_opened"),
  "terminal.output": to("terminal_output", { text: from("data", "output", "delta", "content") }),
  "terminal.exited": to("terminal_exited"),

  "file.created": to("file_changed", { change: always("created") }),
  "file.modified": to("file_changed", { change: always("modified") }),
  "file.deleted": to("file_changed", { change: always("deleted") }),
  "file.renamed": to("file_changed", { change: always("renamed"), path: from("to"), previousPath: from("from") }),

  "plan.updated": to("plan_updated", { plan: from("steps") }),
  "step.started": to("step_started"),
  "step.completed": to("step_completed"),
  "subagent.started": to("subagent_started"),
  "subagent.completed": to("subagent_completed"),
  "artifact.created": to("artifact_created"),
  "checkpoint.created": to("checkpoint_created"),
  "state.snapshot": to("state_snapshot", { state: from("snapshot") }),
  "state.delta": to("state_delta", { patch: from("delta") }),

  usage,
  rate_limited: to("rate_limited"),
  error: to("error", problem("agent_error", "The agent reported an error"))
} satisfies Record<string, Rule>

/** By platform type. A map, because a type may be called `constructor`. */
export const table: ReadonlyMap<string, Rule> = new Map(Object.entries(rules))
