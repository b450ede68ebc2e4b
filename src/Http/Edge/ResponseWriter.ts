/**
 * Writes responses: small ones in batches, streams as fast as their clients read them.
 *
 * A write to a socket wakes the client, which costs more than the write itself when the client sleeps on another
 * processor. After the first of several writes that processor is awake: a GET under 64 connections takes a fifth
 * less of the server's time than when each response is written at once.
 */
import type { ServerResponse } from "node:http"
import { Effect, type Fiber, FiberId, Stream } from "effect"
import { drained } from "../../base/EventLoop.ts"
import { ServiceUnavailable } from "../ApiError.ts"
import { requestIdHeader } from "../HeaderFields.ts"
import { fromError, type Reply } from "../Reply.ts"
import { accountOf, noteWritten } from "../Server/UnsentBudget.ts"

/**
 * Maximum number of responses in a batch. More gain little, and if all clients wait for one batch, the server idles.
 */
const maxBatch = 8

/** Above this number of bytes, the cost of waking the client is negligible. */
const smallBody = 32 * 1024

interface Pending {
  readonly response: ServerResponse
  readonly body: string | Uint8Array | undefined
  readonly encoding: BufferEncoding
}

/** Delays small responses until at most the end of the event loop's iteration, and never during long work. */
export class ResponseBatcher {
  #pending: Array<Pending> = []
  #isScheduled = false

  /** Ends a response, whose head is written, with a body of `bytes` bytes; text is UTF-8. */
  end(response: ServerResponse, body: string | Uint8Array | undefined, bytes: number): void {
    // Text with one byte for each character is ASCII: Latin-1 copies it instead of encoding it.
    this.#pending.push({ response, body, encoding: bytes === body?.length ? "latin1" : "utf8" })
    if (this.#pending.length >= maxBatch || bytes > smallBody) this.flush()
    else if (!this.#isScheduled) {
      this.#isScheduled = true
      // Runs after all reads of this iteration.
      setImmediate(this.#onImmediate)
    }
  }

  /** Flushes before a body of `bytes` bytes is parsed, if that takes long. */
  flushBefore(bytes: number): void {
    if (bytes > smallBody) this.flush()
  }

  readonly #onImmediate = (): void => {
    this.#isScheduled = false
    this.flush()
  }

  /** Writes the pending responses. To be called before long work. */
  flush(): void {
    if (this.#pending.length === 0) return
    const batch = this.#pending
    this.#pending = []
    for (const { response, body, encoding } of batch) {
      // A completed response has no socket.
      const { socket } = response
      if (typeof body === "string" || body === undefined) response.end(body, encoding)
      else endShared(response, body)
      noteWritten(socket)
    }
  }
}

/** Ends a response with bytes that may be sent to many clients at once. */
const endShared = (response: ServerResponse, body: Uint8Array): void => {
  const { socket } = response
  response.end(body)
  if (socket === null || socket.writableLength === 0) return
  const account = accountOf(socket)
  if (account === undefined) return
  account.share(body)
  response.once("close", () => account.unshare(body))
}

/**
 * Sends a piece of a body, which is in memory until all of it has been sent: for this client alone, or for all that get
 * the same bytes. The server disconnects a client that reads nothing.
 */
const write = (response: ServerResponse, chunk: Uint8Array): Effect.Effect<void> =>
  Effect.suspend(() => {
    const { socket } = response
    if (response.write(chunk) || response.destroyed) return Effect.void
    const account = accountOf(socket)
    if (account === undefined || socket === null || socket.writableLength === 0) return drained(response)
    account.share(chunk)
    return Effect.ensuring(
      drained(response),
      Effect.sync(() => account.unshare(chunk))
    )
  })

/** Sends a body in pieces, as fast as the client reads it. A failure during that closes the connection. */
const sendStream = (body: Stream.Stream<Uint8Array>, response: ServerResponse): Effect.Effect<void> =>
  Stream.runForEach(body, chunk => write(response, chunk)).pipe(
    Effect.zipRight(Effect.sync(() => response.end())),
    Effect.catchAllCause(cause =>
      Effect.zipRight(
        Effect.logWarning("An answer was cut off half-way", cause),
        Effect.sync(() => response.destroy())
      )
    )
  )

/** Whether the budget of unsent bytes has no room for a large answer; small ones are always sent. */
const isTooMuch = (response: ServerResponse, bytes: number): boolean =>
  bytes > alwaysSent && accountOf(response.socket)?.admits(bytes) === false

const alwaysSent = 64 * 1024

const overloaded = (): Reply =>
  fromError(
    new ServiceUnavailable({ error: "Too many bytes wait for clients to read them", headers: { "retry-after": "1" } })
  )

/**
 * Writes an answer with the request's `id`. The rest of a stream is released when the client disconnects, or
 * has already disconnected.
 */
export const send = (
  reply: Reply,
  response: ServerResponse,
  isHead: boolean,
  id: string,
  batcher: ResponseBatcher,
  fork: (effect: Effect.Effect<void>) => Fiber.RuntimeFiber<void>
): void => {
  const { body, headers, release, status } = reply
  if (response.destroyed) {
    if (release !== undefined) fork(release)
    return
  }
  if (typeof body === "string" || body instanceof Uint8Array) {
    const bytes = typeof body === "string" ? Buffer.byteLength(body) : body.length
    if (isTooMuch(response, bytes)) return send(overloaded(), response, isHead, id, batcher, fork)
    const fields: Array<string | number> = [requestIdHeader, id, "content-length", bytes]
    for (const name in headers) fields.push(name, headers[name]!)
    response.writeHead(status, fields)
    batcher.end(response, isHead ? undefined : body, bytes)
    return
  }
  response.writeHead(status, { ...headers, [requestIdHeader]: id })
  if (body === undefined || isHead) {
    response.end()
    if (release !== undefined) fork(release)
    return
  }
  const sending = fork(
    release === undefined ? sendStream(body, response) : Effect.ensuring(sendStream(body, response), release)
  )
  response.once("close", () => sending.unsafeInterruptAsFork(FiberId.none))
}
