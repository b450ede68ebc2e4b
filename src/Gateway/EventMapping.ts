/**
 * Platform events as client events. The mapping is pure and total.
 */
import { Option, Schema } from "effect"
import type { PlatformEvent } from "../Upstream/PlatformEvent.ts"
import type { Payload, Situation } from "./EventMapping/Rule.ts"
import { table } from "./EventMapping/Table.ts"
import type { EventBody, EventBodyOf } from "./Protocol/Event.ts"
import { Identifier } from "./Protocol/Fields.ts"

export type { Situation } from "./EventMapping/Rule.ts"

/** The client events of a platform event. */
export interface Mapped {
  /** In order, without envelopes. */
  readonly events: ReadonlyArray<EventBody>
  /** The type, where clients are told nothing although it is not one of those that say nothing to them. */
  readonly dropped?: string
  /** The type, where it is known and the payload does not fit, or fits in part only. */
  readonly malformed?: string
}

/** The platform types that are understood. */
export const platformTypes: ReadonlyArray<string> = [...table.keys()]

/** Characters of text in one delta; longer ones are split. Other events are bounded by the size of a platform frame. */
export const longestDelta = 65_536

const isIdentifier = Schema.is(Identifier)

/** A text in pieces, none of which ends within a surrogate pair. */
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

const cut = (event: EventBody): ReadonlyArray<EventBody> => {
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
 * without text it is dropped. An optional field that does not fit is left out. Both are reported as malformed.
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
