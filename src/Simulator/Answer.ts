import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from "node:http"
import { Duration, Effect, type Fiber, FiberId, Redacted, Schema } from "effect"
import type { Delivery } from "./Fault.ts"

/** A request that is answered with a status and `{error}`. */
export class Refused extends Schema.TaggedError<Refused>()("Refused", {
  status: Schema.Int,
  message: Schema.String,
  headers: Schema.optionalWith(Schema.Record({ key: Schema.String, value: Schema.String }), { default: () => ({}) })
}) {}

/** An answer whose body is sent piece by piece. */
export interface Answer {
  readonly status: number
  readonly headers: OutgoingHttpHeaders
  readonly pieces: Iterable<Uint8Array>
  /** The wait before each piece but the first. */
  readonly pace: Duration.DurationInput
}

/** An answer of JSON, or of nothing. */
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

/** The same answer with the second half of its JSON missing, so that it parses nowhere. */
export const halved = (answer: Answer): Answer => {
  const bytes = Buffer.concat([...answer.pieces])
  const half = bytes.subarray(0, Math.floor(bytes.length / 2))
  return { ...answer, headers: { ...answer.headers, "content-length": half.length }, pieces: [half] }
}

/** Cuts pieces into ones of at most so many bytes. */
export const cut = function* (pieces: Iterable<Uint8Array>, size: number): Generator<Uint8Array> {
  for (const piece of pieces) {
    for (let start = 0; start < piece.length; start += size) yield piece.subarray(start, start + size)
  }
}

const write = (response: ServerResponse, bytes: Uint8Array): Effect.Effect<void> =>
  Effect.async(resume => {
    response.write(bytes, () => resume(Effect.void))
  })

/** Lets everything else that is ready run, the sockets' input and output included. */
export const breathe: Effect.Effect<void> = Effect.async(resume => {
  const immediate = setImmediate(() => resume(Effect.void))
  return Effect.sync(() => clearImmediate(immediate))
})

/**
 * Sends an answer the way it is to be delivered. Each piece is handed to the network before the next is made; one
 * that breaks off ends with the connection cut and nothing to mark the end.
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
      yield* breathe
      left -= piece.length
    }
    if (drop === undefined || left > 0) {
      response.end()
    } else {
      // The headers are on their way only after the loop has turned.
      yield* breathe
      response.socket?.destroy()
    }
  })

/** Ends the work on an answer when its client goes. */
export const endWith = (response: ServerResponse, work: Fiber.RuntimeFiber<void>): void => {
  response.once("close", () => work.unsafeInterruptAsFork(FiberId.none))
  // What is written before the work has ended fails, and is of no interest to anybody.
  response.on("error", () => {})
}

/** Refuses a request whose bearer is not the key; without a key, none. */
export const authorize = (
  request: IncomingMessage,
  key: Redacted.Redacted | undefined
): Effect.Effect<void, Refused> => {
  const [scheme, token] = (request.headers.authorization ?? "").split(" ")
  if (key === undefined || (scheme?.toLowerCase() === "bearer" && token === Redacted.value(key))) return Effect.void
  return Effect.fail(new Refused({ status: 401, message: "Unauthorized" }))
}

/** The body of a request as text; 413 above the bound, in bytes. */
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
    // Whoever sends half a body is gone, and with it the fiber that waits here.
    request.once("error", () => resume(Effect.never))
  })

/** The JSON body of a request, decoded; 400 that names what is wrong. */
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
