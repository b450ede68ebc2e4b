/**
 * Platform events as client events. The mapping is pure and total.
 */
import { Option, Schema } from "effect"
import type { PlatformEvent } from "../Upstream/PlatformEvent.ts"
import { type Payload, type Situation, table } from "./EventMapping/Rules.ts"
import type { EventBody, EventBodyOf, EventType } from "./Protocol/Event.ts"
import { Identifier } from "./Protocol/Fields.ts"

export type { Situation } from "./EventMapping/Rules.ts"

/** The client events of a platform event. */
export interface Mapped {
  /** In order, without envelopes. */
  readonly events: ReadonlyArray<EventBody>
  /** The type, if the event is dropped although its type should reach clients. */
  readonly dropped?: string
  /** The type, if it is known and a field of the payload is invalid. */
  readonly malformed?: string
}

/** The platform types that have a rule. */
export const platformTypes: ReadonlyArray<string> = [...table.keys()]

/** Maximum characters of a delta; longer ones are split. Other events are bounded by the size of a platform frame. */
export const longestDelta = 65_536

const isIdentifier = Schema.is(Identifier)

/** Splits a text into pieces, none of which ends within a surrogate pair. */
const pieces = (text: string): ReadonlyArray<string> => {
  const all: Array<string> = []
  for (let at = 0; at < text.length; ) {
    const end = at + longestDelta
    const last = text.charCodeAt(end - 1)
    const isSplit = end < text.length && last >= 0xd800 && last <= 0xdbff
    const next = isSplit ? end - 1 : end
    all.push(text.slice(at, next))
    at = next
  }
  return all
}

/** Splits an event whose text is too long for one event. */
export const cut = (event: EventBody): ReadonlyArray<EventBody> => {
  switch (event.type) {
    case "text_delta":
    case "thinking_delta":
    case "tool_call_delta":
    case "terminal_output":
      return event.text.length <= longestDelta ? [event] : pieces(event.text).map(text => ({ ...event, text }))
    default:
      return [event]
  }
}

const textNames = ["content", "text", "delta"]

/** The text of an event of unknown type. */
const textOf = (payload: Payload): string | undefined =>
  textNames
    .map(name => (Object.hasOwn(payload, name) ? payload[name] : undefined))
    .find((value): value is string => typeof value === "string" && value !== "")

const unknown = (type: string, payload: Payload, { turnId }: Situation): Mapped => {
  const text = textOf(payload)
  if (text === undefined) return { events: [], dropped: type }
  const named = Object.hasOwn(payload, "turnId") ? payload.turnId : turnId
  const delta: EventBodyOf<"text_delta"> = {
    type: "text_delta",
    ...(isIdentifier(named) ? { turnId: named } : {}),
    text
  }
  return { events: cut(delta) }
}

/**
 * Maps a platform event.
 *
 * A known type whose payload lacks a required field is treated as an unknown type: its text becomes a `text_delta`, and
 * without text it is dropped. An invalid optional field is left out. Both are reported as malformed.
 */
export const map = ({ type, payload }: Pick<PlatformEvent, "type" | "payload">, situation: Situation = {}): Mapped => {
  const rule = table.get(type)
  if (rule === undefined) return unknown(type, payload, situation)
  const outcome = rule(payload, situation)
  if (Option.isNone(outcome)) return { ...unknown(type, payload, situation), malformed: type }
  const { isWhole } = outcome.value
  const events = outcome.value.events.flatMap(cut)
  return isWhole ? { events } : { events, malformed: type }
}

const deltaTypes = ["text_delta", "thinking_delta", "tool_call_delta", "terminal_output"] as const

type Delta = EventBodyOf<(typeof deltaTypes)[number]>

/**
 * The halves that are held back, each as the text of a delta. The platform may split a character between two deltas, for
 * example if it writes UTF-16 code units one by one. The first half, a high surrogate, is held back until the next delta of
 * the same block has the second half. If the block ends first, U+FFFD is sent instead. At most one half is held back for
 * each type of delta.
 */
export type Halves = ReadonlyMap<Delta["type"], Delta>

/** No half is held back. */
export const noHalves: Halves = new Map()

const isDelta = (body: EventBody): body is Delta => deltaTypes.some(type => type === body.type)

/** The events that end a block, with the type of its deltas and the field that identifies the block. */
const ends: Partial<Record<EventType, readonly [Delta["type"], string]>> = {
  text_end: ["text_delta", "messageId"],
  thinking_end: ["thinking_delta", "thinkingId"],
  tool_call: ["tool_call_delta", "callId"],
  terminal_exited: ["terminal_output", "terminalId"]
}

/** Whether two deltas differ only in their text. */
const isSameBlock = (a: Delta, b: Delta): boolean =>
  [...Object.keys(a), ...Object.keys(b)].every(name => name === "text" || Reflect.get(a, name) === Reflect.get(b, name))

const isEndedBy = (held: Delta, body: EventBody): boolean => {
  switch (body.type) {
    case "session_state":
      return true
    case "turn_completed":
    case "turn_errored":
    case "turn_interrupted":
      return held.turnId === undefined || held.turnId === body.turnId
    default: {
      const end = ends[body.type]
      if (end?.[0] !== held.type) return isDelta(body) && body.type === held.type && !isSameBlock(held, body)
      return Reflect.get(held, end[1]) === Reflect.get(body, end[1])
    }
  }
}

const isHighSurrogate = (code: number): boolean => code >= 0xd800 && code <= 0xdbff

/** The events to send, without lone surrogates, and the halves to hold back after them. */
export const join = (
  before: Halves,
  bodies: ReadonlyArray<EventBody>
): { readonly halves: Halves; readonly events: ReadonlyArray<EventBody> } => {
  const halves = new Map(before)
  const events: Array<EventBody> = []
  for (const body of bodies) {
    for (const [type, held] of halves) {
      if (!isEndedBy(held, body)) continue
      halves.delete(type)
      events.push({ ...held, text: "\uFFFD" })
    }
    if (!isDelta(body)) {
      events.push(body)
      continue
    }
    const text = (halves.get(body.type)?.text ?? "") + body.text
    halves.delete(body.type)
    const isSplit = isHighSurrogate(text.charCodeAt(text.length - 1))
    if (isSplit) halves.set(body.type, { ...body, text: text.slice(-1) })
    const whole = { ...body, text: (isSplit ? text.slice(0, -1) : text).toWellFormed() }
    if (whole.text !== "" || body.text === "") events.push(...cut(whole))
  }
  return { halves, events }
}

/** Maps a platform event like {@link map}, and joins its text with the halves that were held back. */
export const mapJoined = (
  halves: Halves,
  event: PlatformEvent,
  situation: Situation
): { readonly halves: Halves; readonly mapped: Mapped } => {
  const mapped = map(event, situation)
  const { asSent, type } = event
  if (halves.size === 0 && asSent === undefined) return { halves, mapped }
  const sent = asSent === undefined ? [] : map({ type, payload: asSent }, situation).events
  const bodies = mapped.events.map((body, index) => {
    const same = sent[index]
    return isDelta(body) && same?.type === body.type && same.text.length === body.text.length
      ? { ...body, text: same.text }
      : body
  })
  const joined = join(halves, bodies)
  return { halves: joined.halves, mapped: { ...mapped, events: joined.events } }
}
