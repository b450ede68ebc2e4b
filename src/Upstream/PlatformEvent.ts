/**
 * What goes over the connection to an agent instance, in both directions.
 */
import { Either, Option, Schema } from "effect"

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

/** Characters of a type and of an id. */
const longest = 256

const Identifier = Schema.Union(
  Schema.String.pipe(Schema.minLength(1), Schema.maxLength(longest)),
  Schema.Number.pipe(Schema.int())
)

const Payload = Schema.Record({ key: Schema.String, value: Schema.Unknown })

const decodeType = Schema.decodeUnknownOption(Schema.String.pipe(Schema.minLength(1), Schema.maxLength(longest)))
const decodeId = Schema.decodeUnknownOption(Identifier)
const decodeTimestamp = Schema.decodeUnknownOption(
  Schema.Union(
    Schema.Finite,
    Schema.transform(Schema.DateFromString.pipe(Schema.validDate()), Schema.Finite, {
      strict: true,
      decode: date => date.getTime(),
      encode: time => new Date(time)
    })
  )
)

const parse = (frame: string): Either.Either<unknown, string> =>
  Either.try({ try: (): unknown => JSON.parse(frame), catch: () => "not JSON" })

/**
 * Reads a frame, or tells what is wrong with it.
 *
 * An id or a timestamp that cannot be read is taken for absent: the event itself matters more.
 */
export const fromFrame = (frame: string): Either.Either<PlatformEvent, string> =>
  Either.flatMap(parse(frame), (data): Either.Either<PlatformEvent, string> => {
    if (!Schema.is(Payload)(data) || Array.isArray(data)) return Either.left("not an object")
    const type = decodeType(data.type)
    return Option.isNone(type)
      ? Either.left("without a type")
      : Either.right({
          id: Option.getOrUndefined(Option.map(decodeId(data.id), String)),
          type: type.value,
          timestamp: Option.getOrUndefined(decodeTimestamp(data.timestamp)),
          payload: data
        })
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
