/**
 * Decodes the body of a streaming generation into pieces of text.
 */
import { Effect, Option, Schema, Stream } from "effect"
import { excessOfLarge } from "../base/Json/Parsing.ts"
import { UpstreamFailure } from "./Resilience/UpstreamFailure.ts"
import * as ServerSentEvents from "./ServerSentEvents.ts"

/** The format of a body. */
export type Format = "events" | "plain"

/** The format of a content type; a body without one is plain text. */
export const formatOf = (contentType: string | undefined): Option.Option<Format> => {
  const essence = (contentType ?? "text/plain").split(";", 1)[0]!.trim().toLowerCase()
  if (essence === "text/event-stream") return Option.some("events")
  return essence === "text/plain" ? Option.some("plain") : Option.none()
}

/** Maximum characters of a generated text. A longer text is a failure. */
export const longestText = 8 * 1024 * 1024

const operation = "generate_stream"

const failed = (reason: UpstreamFailure["reason"], message: string): UpstreamFailure =>
  new UpstreamFailure({ operation, reason, message: `The inference proxy's stream ${message}` })

/** Decodes UTF-8 across chunks. Invalid bytes become U+FFFD. */
const decodeText = <E>(bytes: Stream.Stream<Uint8Array, E>): Stream.Stream<string, E> =>
  Stream.suspend(() => {
    const decoder = new TextDecoder("utf-8")
    return Stream.concat(
      Stream.map(bytes, chunk => decoder.decode(chunk, { stream: true })),
      Stream.sync(() => decoder.decode())
    )
  })

const Data = Schema.parseJson(Schema.Record({ key: Schema.String, value: Schema.Unknown }))
const decodeData = Schema.decodeUnknownOption(Data)

/** An event has one piece of text and little else. */
const shape = { levels: 1000, members: 65_536 }

const textMembers = ["text", "delta", "content"] as const

const messageOf = (error: unknown): string =>
  typeof error === "string"
    ? error
    : typeof error === "object" && error !== null && "message" in error && typeof error.message === "string"
      ? error.message
      : "no reason given"

/** Marks the end of the text. */
const textEnd = Symbol("end of the text")

/** A piece of text, which may be empty, the end of the text, or the failure of the stream. */
type Meaning = string | typeof textEnd | UpstreamFailure

const meaningOf = ({ name, data }: ServerSentEvents.ServerSentEvent): Meaning => {
  if (data.trim() === "[DONE]") return textEnd
  const decoded = excessOfLarge(data, shape) === undefined ? decodeData(data) : Option.none()
  if (Option.isNone(decoded)) return failed("malformed", "has an event whose data is not a JSON object")
  for (const member of textMembers) {
    const text = decoded.value[member]
    if (typeof text === "string") return text
  }
  const error = decoded.value.error ?? (name === "error" ? decoded.value : undefined)
  return error === undefined || error === null
    ? ""
    : failed("status", `reports an error: ${messageOf(error).slice(0, 300)}`)
}

/** Marks the end of the body. */
const bodyEnd = Symbol("end of the body")

/**
 * The pieces of text in a stream of events, up to `[DONE]`.
 *
 * A body that ends without `[DONE]` was truncated. Texts before a failure are returned.
 */
const fromEvents = (text: Stream.Stream<string, UpstreamFailure>): Stream.Stream<string, UpstreamFailure> =>
  Stream.suspend(() => {
    const reader = ServerSentEvents.reader()
    const read = (piece: string | typeof bodyEnd): ReadonlyArray<Meaning> => {
      try {
        if (piece !== bodyEnd) return reader.push(piece).map(meaningOf)
        const isComplete = reader.end().map(meaningOf).includes(textEnd)
        return [isComplete ? textEnd : failed("connection", "ended before [DONE]")]
      } catch (error) {
        if (error instanceof ServerSentEvents.EventTooLong) {
          return [failed("too_large", `is refused: ${error.message}`)]
        }
        throw error
      }
    }
    return Stream.concat(text, Stream.succeed(bodyEnd)).pipe(
      Stream.mapConcat(read),
      Stream.takeWhile(meaning => meaning !== textEnd),
      Stream.mapEffect(meaning => (typeof meaning === "string" ? Effect.succeed(meaning) : Effect.fail(meaning)))
    )
  })

/** Fails a text that is too long. */
const bounded = (text: Stream.Stream<string, UpstreamFailure>): Stream.Stream<string, UpstreamFailure> =>
  Stream.suspend(() => {
    let length = 0
    return Stream.tap(text, piece => {
      length += piece.length
      return length > longestText
        ? Effect.fail(failed("too_large", `is longer than ${longestText} characters`))
        : Effect.void
    })
  })

/** The pieces of text in a body, without empty ones. */
export const texts = (
  format: Format,
  body: Stream.Stream<Uint8Array, UpstreamFailure>
): Stream.Stream<string, UpstreamFailure> => {
  const text = decodeText(body)
  return (format === "events" ? fromEvents(text) : text).pipe(
    Stream.filter(piece => piece !== ""),
    bounded
  )
}
