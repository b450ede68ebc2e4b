import type { ServerResponse } from "node:http"
import { Effect, Stream } from "effect"
import { ServiceUnavailable } from "../ApiError.ts"
import { fromError, type Reply } from "../Reply.ts"
import { header } from "../RequestId.ts"
import type { ResponseBatcher } from "../Server/ResponseBatcher.ts"
import { accountOf } from "../Server/UnsentBudget.ts"

/** Waits until a response takes more, or is gone. A client that takes nothing is cut by the server. */
const drained = (response: ServerResponse): Effect.Effect<void> =>
  Effect.async(resume => {
    const done = (): void => {
      response.off("drain", done)
      response.off("close", done)
      resume(Effect.void)
    }
    response.on("drain", done)
    response.on("close", done)
    return Effect.sync(() => {
      response.off("drain", done)
      response.off("close", done)
    })
  })

/**
 * Sends a piece of a body, which lies in memory until all of it has left: for this client alone, or for all that are
 * sent the same.
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

/** Sends a body bit by bit, as fast as the client takes it. A failure half-way cuts the connection. */
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

/** An answer too large for what clients leave unread already; small ones are made whatever happens. */
const isTooMuch = (response: ServerResponse, bytes: number): boolean =>
  bytes > alwaysSent && accountOf(response.socket)?.admits(bytes) === false

const alwaysSent = 64 * 1024

const overloaded = (): Reply =>
  fromError(
    new ServiceUnavailable({ error: "Too many bytes wait for clients to read them", headers: { "retry-after": "1" } })
  )

/** Writes an answer, which names the request by `id`. What is left of a stream is given back when the client leaves. */
export const send = (
  reply: Reply,
  response: ServerResponse,
  isHead: boolean,
  id: string,
  batcher: ResponseBatcher,
  runFork: <A>(effect: Effect.Effect<A>) => { readonly interrupt: () => void }
): void => {
  const { body, headers, release, status } = reply
  if (typeof body === "string" || body instanceof Uint8Array) {
    const bytes = typeof body === "string" ? Buffer.byteLength(body) : body.length
    if (isTooMuch(response, bytes)) return send(overloaded(), response, isHead, id, batcher, runFork)
    const fields: Array<string | number> = [header, id, "content-length", bytes]
    for (const name in headers) fields.push(name, headers[name]!)
    response.writeHead(status, fields)
    batcher.end(response, isHead ? undefined : body, bytes)
    return
  }
  response.writeHead(status, { ...headers, [header]: id })
  if (body === undefined || isHead) {
    response.end()
    if (release !== undefined) runFork(release)
    return
  }
  const sending = runFork(
    release === undefined ? sendStream(body, response) : Effect.ensuring(sendStream(body, response), release)
  )
  response.once("close", sending.interrupt)
}
