import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from "node:http"
import { Duration, Effect, type Fiber, FiberId, Redacted, Schema } from "effect"
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

/** Splits pieces into ones of at most so many bytes. */
export const cut = function* (pieces: Iterable<Uint8Array>, size: number): Generator<Uint8Array> {
  for (const piece of pieces) {
    for (let start = 0; start < piece.length; start += size) yield piece.subarray(start, start + size)
  }
}

const write = (response: ServerResponse, bytes: Uint8Array): Effect.Effect<void> =>
  Effect.async(resume => {
    response.write(bytes, () => resume(Effect.void))
  })

/** Lets other fibers and sockets run. */
export const yieldToEventLoop: Effect.Effect<void> = Effect.async(resume => {
  const immediate = setImmediate(() => resume(Effect.void))
  return Effect.sync(() => clearImmediate(immediate))
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
    const pieces = drip === undefined ? answer.pieces : cut(answer.pieces, drip.bytes)
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

/** The body of a request as text; 413 above `bound` bytes. */
export const bodyOf = (request: IncomingMessage, bound: number): Effect.Effect<string, Refused> =>
  Effect.async(resume => {
    const chunks: Array<Buffer> = []
    let size = 0
    request.on("data", (chunk: Buffer) => {
      size += chunk.length
      if (size <= bound) chunks.push(chunk)
      else chunks.length = 0
    })
    request.once("end", () => {
      const message = `A body of ${size} bytes is over the limit of ${bound}`
      resume(
        size <= bound
          ? Effect.succeed(Buffer.concat(chunks).toString("utf8"))
          : Effect.fail(new Refused({ status: 413, message }))
      )
    })
    // The client is gone, and its disconnection interrupts this fiber.
    request.once("error", () => resume(Effect.never))
  })

/** The decoded JSON body of a request, or 400 with the reason. */
export const decodeBody = <A, I>(
  request: IncomingMessage,
  bound: number,
  schema: Schema.Schema<A, I>
): Effect.Effect<A, Refused> =>
  Effect.flatMap(bodyOf(request, bound), text =>
    Effect.mapError(
      Schema.decodeUnknown(Schema.parseJson(schema))(text),
      error => new Refused({ status: 400, message: error.message })
    )
  )
