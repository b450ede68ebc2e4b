/**
 * What goes over the connection to an agent instance, in both directions.
 */
import { Either, Schema } from "effect"
import { parseWellFormed } from "../Json/Unicode.ts"
import { identifierChars } from "./Identifier.ts"

/**
 * An event of the agent platform.
 *
 * Only the envelope is understood here; what the fields mean depends on the type, and is for whoever maps it.
 */
export interface PlatformEvent {
  /** Position to resume after; an event without one cannot be resumed after. */
  readonly id: string | undefined
  readonly type: string
  /** Epoch milliseconds, as the platform has it. */
  readonly timestamp: number | undefined
  /** The whole object as received, envelope included. */
  readonly payload: Readonly<Record<string, unknown>>
}

/** Characters of a type. */
const typeChars = 256

/** Many events come every second, so the envelope is read by hand. */
const isText = (value: unknown, most: number): value is string =>
  typeof value === "string" && value.length > 0 && value.length <= most

const idOf = (value: unknown): string | undefined => {
  if (isText(value, identifierChars)) return value
  return typeof value === "number" && Number.isSafeInteger(value) ? String(value) : undefined
}

/** Characters of a date. */
const longestDate = 64

/** RFC 3339, or whatever else a JavaScript date is made of. */
const timeOf = (value: unknown): number | undefined => {
  const time = typeof value === "string" && value.length <= longestDate ? Date.parse(value) : value
  return typeof time === "number" && Number.isFinite(time) ? time : undefined
}

const isPayload = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** No event has nearly as much; a frame of 8 MiB that has more would take seconds to parse. */
const shape = { levels: 1000, members: 250_000 }

/**
 * Reads a frame, or tells what is wrong with it.
 *
 * An id or a timestamp that cannot be read is taken for absent: the event itself matters more.
 */
export const fromFrame = (frame: string): Either.Either<PlatformEvent, string> =>
  Either.flatMap(parseWellFormed(frame, shape), (data): Either.Either<PlatformEvent, string> => {
    if (!isPayload(data)) return Either.left("is not an object")
    const { id, timestamp, type } = data
    return isText(type, typeChars)
      ? Either.right({ id: idOf(id), type, timestamp: timeOf(timestamp), payload: data })
      : Either.left("is without a type")
  })

/** A message of a user, which starts a turn. */
export const MessageFrame = Schema.Struct({
  type: Schema.Literal("message"),
  content: Schema.String,
  turnId: Schema.String
})

/** An end to a turn before its time. */
export const InterruptFrame = Schema.Struct({ type: Schema.Literal("interrupt"), turnId: Schema.String })

/** An answer to a question or an approval that the agent asked for. */
export const AnswerFrame = Schema.Struct({
  type: Schema.Literal("answer"),
  requestId: Schema.String,
  answer: Schema.Unknown
})

/** What the gateway sends. */
export const PlatformFrame = Schema.Union(MessageFrame, InterruptFrame, AnswerFrame)

/** What the gateway sends. */
export type PlatformFrame = (typeof PlatformFrame)["Type"]

/** A frame as text. */
export const toFrame: (frame: PlatformFrame) => string = Schema.encodeSync(Schema.parseJson(PlatformFrame))
