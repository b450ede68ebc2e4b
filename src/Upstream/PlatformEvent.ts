/**
 * The frames of the connection to an agent instance, in both directions.
 */
import { Either, Schema } from "effect"
import { MiB } from "../base/Bytes.ts"
import {
  excessOfLarge,
  isObject,
  type JsonObject,
  mayBeIllFormed,
  parseChecked,
  toWellFormed
} from "../base/Json/Parsing.ts"

/**
 * Maximum characters (UTF-16 code units) of an id of the agent platform: of instances, turns, messages, events. The
 * platform's client, the records of sessions and the clients' protocol share this limit, so that none of them refuses
 * an id that another has accepted.
 */
export const identifierChars = 512

/**
 * An event of the agent platform.
 *
 * Only the envelope is decoded here. The meaning of other fields depends on the type.
 */
export interface PlatformEvent {
  /** The position to resume after, if the event has one. */
  readonly id: string | undefined
  readonly type: string
  /** Epoch milliseconds of the platform's clock. */
  readonly timestamp: number | undefined
  /** The whole object as received, with the envelope, and U+FFFD in place of lone surrogates. */
  readonly payload: JsonObject
  /** The characters of its frame; it counts as small without them. */
  readonly size?: number
  /** The object with its lone surrogates, if there are any: two texts may each have one half of a character. */
  readonly asSent?: JsonObject | undefined
}

/** Maximum characters of a type. */
const typeChars = 256

/** The envelope is decoded without a schema, which would be slow for many events. */
const isText = (value: unknown, max: number): value is string =>
  typeof value === "string" && value.length > 0 && value.length <= max

const idOf = (value: unknown): string | undefined => {
  if (isText(value, identifierChars)) return value
  return typeof value === "number" && Number.isSafeInteger(value) ? String(value) : undefined
}

/** Maximum characters of a date. */
const longestDate = 64

/** Parses RFC 3339, or another form that `Date.parse` accepts. */
const timeOf = (value: unknown): number | undefined => {
  const time = typeof value === "string" && value.length <= longestDate ? Date.parse(value) : value
  return typeof time === "number" && Number.isFinite(time) ? time : undefined
}

/** The maximum bytes of an event, by default and at most. To decode, print and store one takes about 20 ms for each MiB. */
export const eventBytes = { default: MiB, least: 64 * 1024, most: 8 * MiB } as const

/** The limit of the bytes of events that have not arrived whole, over all instances. */
export const unfinishedBytes = { default: 128 * MiB, least: 2 * eventBytes.most, most: 16 * 1024 * MiB } as const

/** The limits of an event's structure. Objects with more members take longer than the bytes of a frame would. */
const shape = { levels: 1000, members: 32_768 }

/** A frame that exceeds a limit, and so is not decoded. */
export class OversizedFrame {
  /** @param problem the predicate of a sentence about the event */
  constructor(readonly problem: string) {}

  /** The event that takes its place, so that clients learn of it. */
  get event(): PlatformEvent {
    const message = `An event of the agent was left out, because it ${this.problem}`
    const payload = { type: "error", code: "event_too_large", message }
    return { id: undefined, type: payload.type, timestamp: undefined, payload }
  }
}

/** Decodes a frame. Left is the reason why it is invalid. An invalid id or timestamp counts as absent. */
export const fromFrame = (frame: string): Either.Either<PlatformEvent, string | OversizedFrame> => {
  const isSuspect = mayBeIllFormed(frame)
  const problem = excessOfLarge(frame, shape, isSuspect)
  if (problem !== undefined) return Either.left(new OversizedFrame(problem))
  return Either.flatMap(parseChecked(frame), (data): Either.Either<PlatformEvent, string> => {
    const payload = isSuspect ? toWellFormed(data) : data
    if (!isObject(payload)) return Either.left("is not an object")
    const { id, timestamp, type } = payload
    return isText(type, typeChars)
      ? Either.right({
          id: idOf(id),
          type,
          timestamp: timeOf(timestamp),
          payload,
          size: frame.length,
          asSent: payload !== data && isObject(data) ? data : undefined
        })
      : Either.left("is without a type")
  })
}

/** What the client's protocol has in addition to a message or an answer, such as the tools of an AG-UI client. */
const input = { input: Schema.optionalWith(Schema.Unknown, { exact: true }) }

/** A user's message, which starts a turn. */
export const MessageFrame = Schema.Struct({
  type: Schema.Literal("message"),
  content: Schema.String,
  turnId: Schema.String,
  ...input
})

/** Ends a turn early. */
export const InterruptFrame = Schema.Struct({ type: Schema.Literal("interrupt"), turnId: Schema.String })

/** The answer to an agent's question or request for approval. */
export const AnswerFrame = Schema.Struct({
  type: Schema.Literal("answer"),
  requestId: Schema.String,
  answer: Schema.Unknown,
  ...input
})

/** What the gateway sends. */
export const PlatformFrame = Schema.Union(MessageFrame, InterruptFrame, AnswerFrame)
export type PlatformFrame = (typeof PlatformFrame)["Type"]

/** A frame as text. */
export const toFrame: (frame: PlatformFrame) => string = Schema.encodeSync(Schema.parseJson(PlatformFrame))
