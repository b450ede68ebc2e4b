import type { ServerResponse } from "node:http"
import { Effect, Stream } from "effect"
import type { Departures } from "../Http/Departures.ts"
import type { Reply } from "../Http/Reply.ts"
import { header } from "../Http/RequestId.ts"

/** Waits until a response takes more, or is gone. */
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

/** How long a client may take nothing of what was sent to it, before it gives up its place to others. */
const patience = "60 seconds"

/** Node tells of progress by whole writes only: smaller ones show that a slow client is alive. */
const pieceBytes = 64 * 1024

const write = (response: ServerResponse, chunk: Uint8Array): Effect.Effect<void, string> =>
  chunk.length <= pieceBytes
    ? writePiece(response, chunk)
    : Effect.zipRight(
        writePiece(response, chunk.subarray(0, pieceBytes)),
        Effect.suspend(() => write(response, chunk.subarray(pieceBytes)))
      )

const writePiece = (response: ServerResponse, chunk: Uint8Array): Effect.Effect<void, string> =>
  Effect.suspend(() =>
    response.write(chunk) || response.destroyed
      ? Effect.void
      : Effect.timeoutFail(drained(response), {
          duration: patience,
          onTimeout: () => `the client has read nothing for ${patience}`
        })
  )

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

/** Writes an answer, which names the request by `id`. What is left of a stream is given back when the client leaves. */
export const send = (
  reply: Reply,
  response: ServerResponse,
  isHead: boolean,
  id: string,
  departures: Departures,
  runFork: <A>(effect: Effect.Effect<A>) => { readonly interrupt: () => void }
): void => {
  const { body, headers, release, status } = reply
  if (reply.upgraded !== undefined) return
  if (typeof body === "string") {
    const bytes = Buffer.byteLength(body)
    const fields: Array<string | number> = [header, id, "content-length", bytes]
    for (const name in headers) fields.push(name, headers[name]!)
    response.writeHead(status, fields)
    departures.end(response, isHead ? undefined : body, bytes)
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
