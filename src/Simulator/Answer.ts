/** Answers of the simulated services, and how they are delivered. */
import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from "node:http"
import { Duration, Effect, type Fiber, FiberId, Redacted, Schema, Stream } from "effect"
import { yieldToEventLoop } from "../base/EventLoop.ts"
import type { Delivery } from "./Fault.ts"

/** A request that is answered with a status and `{error}`. */
export class Refused extends Schema.TaggedError<Refused>()("Refused", {
  status: Schema.Int,
  message: Schema.String,
  headers: Schema.optionalWith(Schema.Record({ key: Schema.String, value: Schema.String }), { default: () => ({}) })
}) {}

export interface Answer {
  readonly status: number
  readonly headers: OutgoingHttpHeaders
  readonly pieces: Iterable<Uint8Array>
  /** The delay before each piece but the first. */
  readonly pace: Duration.DurationInput
}

/** An answer of JSON, or an empty one. */
export const json = (status: number, body?: unknown, headers: OutgoingHttpHeaders = {}): Answer => {
  if (body === undefined) return { status, headers, pieces: [], pace: 0 }
  const bytes = Buffer.from(JSON.stringify(body))
  return {
    status,
    headers: { "content-type": "application/json", "content-length": bytes.length, ...headers },
    pieces: [bytes],
    pace: 0
  }
}

/** The answer to a refused request. */
export const refusal = (refused: Refused): Answer => json(refused.status, { error: refused.message }, refused.headers)

/** The answer without the second half of its JSON. */
export const truncated = (answer: Answer): Answer => {
  const bytes = Buffer.concat([...answer.pieces])
  const half = bytes.subarray(0, Math.floor(bytes.length / 2))
  return { ...answer, headers: { ...answer.headers, "content-length": half.length }, pieces: [half] }
}

/** The same bytes in pieces of the given sizes, in rotation. */
export const cut = function* (
  pieces: Iterable<Uint8Array>,
  sizes: readonly [number, ...Array<number>]
): Generator<Uint8Array> {
  let kept: Uint8Array = Buffer.alloc(0)
  let i = 0
  const next = () => Math.max(1, sizes[i % sizes.length]!)
  for (const piece of pieces) {
    kept = kept.length === 0 ? piece : Buffer.concat([kept, piece])
    for (let size = next(); kept.length >= size; size = next()) {
      yield kept.subarray(0, size)
      kept = kept.subarray(size)
      i++
    }
  }
  if (kept.length > 0) yield kept
}

const write = (response: ServerResponse, bytes: Uint8Array): Effect.Effect<void> =>
  Effect.async(resume => {
    response.write(bytes, () => resume(Effect.void))
  })

/**
 * Sends an answer with the faults of its delivery. Each piece is written to the network before the next one is made.
 */
export const deliver = (
  response: ServerResponse,
  answer: Answer,
  { drop, drip }: Pick<Delivery, "drop" | "drip">
): Effect.Effect<void> =>
  Effect.gen(function* () {
    response.writeHead(answer.status, answer.headers)
    response.flushHeaders()
    const wait = drip === undefined ? Duration.decode(answer.pace) : Duration.millis(drip.everyMillis)
    const pieces = drip === undefined ? answer.pieces : cut(answer.pieces, [drip.bytes])
    let left = drop?.after ?? Number.POSITIVE_INFINITY
    let first = drip === undefined
    for (const piece of pieces) {
      if (left <= 0) break
      if (!first && Duration.toMillis(wait) > 0) yield* Effect.sleep(wait)
      first = false
      yield* write(response, piece.subarray(0, left))
      yield* yieldToEventLoop
      left -= piece.length
    }
    if (drop === undefined || left > 0) {
      response.end()
    } else {
      // The headers are written in the next iteration of the event loop.
      yield* yieldToEventLoop
      response.socket?.destroy()
    }
  })

/** Interrupts the work on an answer when its client disconnects. */
export const endWith = (response: ServerResponse, work: Fiber.RuntimeFiber<void>): void => {
  response.once("close", () => work.unsafeInterruptAsFork(FiberId.none))
  // Writes may fail until the work has ended.
  response.on("error", () => {})
}

/** Refuses a request whose bearer is not the key, if there is a key. */
export const authorize = (
  request: IncomingMessage,
  key: Redacted.Redacted | undefined
): Effect.Effect<void, Refused> => {
  const [scheme, token] = (request.headers.authorization ?? "").split(" ")
  if (key === undefined || (scheme?.toLowerCase() === "bearer" && token === Redacted.value(key))) return Effect.void
  return Effect.fail(new Refused({ status: 401, message: "Unauthorized" }))
}

/** The decoded JSON body of a request; 413 above `bound` bytes, 400 with the reason if it is invalid. */
export const decodeBody = <A, I>(
  request: IncomingMessage,
  bound: number,
  schema: Schema.Schema<A, I>
): Effect.Effect<A, Refused> =>
  Effect.gen(function* () {
    const chunks: Array<Buffer> = []
    let size = 0
    yield* Stream.fromAsyncIterable<Buffer, unknown>(request, error => error).pipe(
      Stream.runForEach(chunk =>
        Effect.sync(() => {
          size += chunk.length
          if (size <= bound) chunks.push(chunk)
        })
      ),
      // The client has disconnected, which interrupts this fiber.
      Effect.catchAll(() => Effect.never)
    )
    if (size > bound) {
      return yield* new Refused({ status: 413, message: `A body of ${size} bytes is over the limit of ${bound}` })
    }
    return yield* Effect.mapError(
      Schema.decodeUnknown(Schema.parseJson(schema))(Buffer.concat(chunks).toString("utf8")),
      error => new Refused({ status: 400, message: error.message })
    )
  })
