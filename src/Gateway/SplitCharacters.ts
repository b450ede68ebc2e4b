/**
 * Joins characters that the platform splits between two deltas, for example if it writes UTF-16 code units one by one.
 *
 * The first half, a high surrogate, is held back until the next delta of the same block has the second half. If the block
 * ends first, U+FFFD is sent instead. At most one half is held back for each type of delta. Pure.
 */
import type { PlatformEvent } from "../Upstream/PlatformEvent.ts"
import * as EventMapping from "./EventMapping.ts"
import type { EventBody, EventBodyOf, EventType } from "./Protocol/Event.ts"

const deltaTypes = ["text_delta", "thinking_delta", "tool_call_delta", "terminal_output"] as const

type Delta = EventBodyOf<(typeof deltaTypes)[number]>

/** The halves that are held back, each as the text of a delta. */
export type Halves = ReadonlyMap<Delta["type"], Delta>

/** No half is held back. */
export const none: Halves = new Map()

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
    if (whole.text !== "" || body.text === "") events.push(...EventMapping.cut(whole))
  }
  return { halves, events }
}

/** Maps a platform event like {@link EventMapping.map}, and joins its text with the halves that were held back. */
export const map = (
  halves: Halves,
  event: PlatformEvent,
  situation: EventMapping.Situation
): { readonly halves: Halves; readonly mapped: EventMapping.Mapped } => {
  const mapped = EventMapping.map(event, situation)
  const { asSent, type } = event
  if (halves.size === 0 && asSent === undefined) return { halves, mapped }
  const sent = asSent === undefined ? [] : EventMapping.map({ type, payload: asSent }, situation).events
  const bodies = mapped.events.map((body, index) => {
    const same = sent[index]
    return isDelta(body) && same?.type === body.type && same.text.length === body.text.length
      ? { ...body, text: same.text }
      : body
  })
  const joined = join(halves, bodies)
  return { halves: joined.halves, mapped: { ...mapped, events: joined.events } }
}
