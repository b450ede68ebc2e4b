/**
 * Answers in gzip (RFC 9110, section 8.4) for clients that accept it. Only answers that handlers select are compressed;
 * event streams and WebSockets never are.
 */
import { availableParallelism } from "node:os"
import { createGzip, type Gzip, gzip } from "node:zlib"
import { Effect, Exit, Stream } from "effect"
import * as Direct from "../base/Direct.ts"
import type { Credentials } from "./Identity.ts"
import { isWriter, type Reply } from "./Reply.ts"

/** Bodies below this number of characters or bytes are sent uncompressed: they fit in a packet. */
const smallest = 1024

/** The fastest level: JSON takes about a tenth more bytes than at the default level, in a third of the time. */
const level = 1

/**
 * Threads that compress at a time, in the whole process: half of the processors, so that requests find the others, and
 * at most half of the threads of libuv, because files and host names need them too.
 */
export const maxThreads = Math.max(1, Math.min(2, Math.floor(availableParallelism() / 2)))

let threads = 0

/** Work of streams that waits for a thread, oldest first. A stream has at most one piece of work at a time. */
const waiting: Array<() => void> = []

/** Passes a thread to the next waiting stream, or frees it. */
const leave = (): void => {
  const next = waiting.shift()
  if (next === undefined) threads--
  else next()
}

const weighted = /^\s*([^\s;,]+)\s*(?:;\s*q\s*=\s*([0-9.]*)\s*)?$/i

/** The weights of the codings in an `Accept-Encoding` (RFC 9110, 12.5.3), or of types in an `Accept`. 0 refuses one. */
export const weightsIn = (header: string | ReadonlyArray<string> = []): ReadonlyMap<string, number> => {
  const weights = new Map<string, number>()
  for (const part of String(header).split(",")) {
    const [, coding, weight = "1"] = weighted.exec(part) ?? []
    // A weight that is no number refuses the coding.
    if (coding !== undefined) weights.set(coding.toLowerCase(), Number(weight) || 0)
  }
  return weights
}

/** Whether a client prefers gzip to the uncompressed answer. */
export const takesGzip = (header: string | ReadonlyArray<string> | undefined): boolean => {
  const weights = weightsIn(header)
  const weight = weights.get("gzip") ?? weights.get("x-gzip") ?? weights.get("*") ?? 0
  return weight > 0 && weight >= (weights.get("identity") ?? 0)
}

const noop = (): void => {}

const encoded = (reply: Reply, body: Reply["body"]): Reply => ({
  ...reply,
  headers: { ...reply.headers, "content-encoding": "gzip" },
  body
})

/** Compresses a body if a thread is free. The thread is freed also if the request was interrupted in the meantime. */
const compressBody = (reply: Reply, body: string | Uint8Array): Effect.Effect<Reply> => {
  if (threads >= maxThreads) return Exit.succeed(reply)
  return Direct.async(resume => {
    threads++
    gzip(body, { level }, (error, bytes) => {
      leave()
      resume(Exit.succeed(error === null ? encoded(reply, bytes) : reply))
    })
    return noop
  })
}

/**
 * Runs a piece of work of a stream once a thread is free. Interrupted work frees its thread when the stream is
 * destroyed: zlib does not report when it has completed a write.
 */
const inThread = (stream: Gzip, work: (done: (error?: Error | null) => void) => void): Effect.Effect<void> =>
  Effect.async(resume => {
    let isDone = false
    const done = (error?: Error | null): void => {
      if (isDone) return
      isDone = true
      stream.off("close", done).off("error", done)
      leave()
      resume(error ? Effect.die(error) : Effect.void)
    }
    const begin = (): void => {
      stream.on("close", done).on("error", done)
      work(done)
    }
    if (threads < maxThreads) {
      threads++
      begin()
    } else waiting.push(begin)
    return Effect.sync(() => {
      const place = waiting.indexOf(begin)
      if (place !== -1) waiting.splice(place, 1)
    })
  })

const openGzip = Effect.acquireRelease(
  // Without a listener an error would end the process; the work of the stream fails anyway.
  Effect.sync(() => createGzip({ level }).on("error", noop)),
  stream => Effect.sync(() => stream.destroy())
)

/** Each chunk is compressed, and the output is sent, before the next one is read. */
const compressStream = (body: Stream.Stream<Uint8Array>): Stream.Stream<Uint8Array> =>
  Stream.unwrapScoped(
    Effect.map(openGzip, stream => {
      let made: Array<Buffer> = []
      stream.on("data", (bytes: Buffer) => made.push(bytes))
      const taken = Effect.sync(() => {
        const bytes = Buffer.concat(made)
        made = []
        return bytes
      })
      const write = (chunk: Uint8Array) => inThread(stream, done => void stream.write(chunk, done))
      // It has ended when all its bytes were read, after its last write.
      const end = inThread(stream, done => void stream.once("end", done).end())
      return body.pipe(
        Stream.mapEffect(chunk => Effect.zipRight(write(chunk), taken)),
        Stream.concat(Stream.fromEffect(Effect.zipRight(end, taken))),
        Stream.filter(bytes => bytes.length > 0)
      )
    })
  )

/** `Vary` of an answer that is sent in several codings. Answers to pages of other origins also depend on the origin. */
export const varyOf = ({ origin }: Credentials["headers"]): string =>
  origin === undefined ? "Accept-Encoding" : "Origin, Accept-Encoding"

/**
 * The reply in gzip, if its body is large enough and the client accepts it. A body is sent uncompressed if no thread is
 * free; a stream, whose client has to wait anyway, takes turns with others.
 */
export const compress = (reply: Reply, { headers }: Pick<Credentials, "headers">): Effect.Effect<Reply> => {
  const { body, status } = reply
  if (status !== 200 || body === undefined) return Exit.succeed(reply)
  const isWhole = typeof body === "string" || body instanceof Uint8Array
  if (!isWhole && isWriter(body)) return Exit.succeed(reply)
  if (isWhole && body.length < smallest) return Exit.succeed(reply)
  const varied = { ...reply, headers: { ...reply.headers, vary: varyOf(headers) } }
  if (!takesGzip(headers["accept-encoding"])) return Exit.succeed(varied)
  return isWhole
    ? Direct.suspend(() => compressBody(varied, body))
    : Exit.succeed(encoded(varied, compressStream(body)))
}

/** {@link compress} for the reply of a handler. */
export const compressed = <E, R>(
  reply: Effect.Effect<Reply, E, R>,
  incoming: Pick<Credentials, "headers">
): Effect.Effect<Reply, E, R> => Direct.flatMap(reply, reply => compress(reply, incoming))
