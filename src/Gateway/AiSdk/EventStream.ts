/**
 * A UI message stream over HTTP, as Server-Sent Events.
 *
 * A stream that is whole ends with `[DONE]`. For a client that has to resume, the connection is closed: the package takes
 * a clean end for success, and a closed connection for a failure of the network, after which it resumes.
 */
import { Effect } from "effect"
import type { SessionEvent } from "../../Client/SessionModel.ts"
import type { Encoding, Reason } from "../Streams/EventStream.ts"
import type { Beginning } from "./Chats.ts"
import type { Chunk } from "./Chunks.ts"

/** The header fields of the answer. */
export const headers = {
  "x-vercel-ai-ui-message-stream": "v1",
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no"
}

const done = "data: [DONE]\n\n"

const textOf = (chunks: Iterable<Chunk>): string =>
  Array.from(chunks, chunk => `data: ${JSON.stringify(chunk)}\n\n`).join("")

/** The error of a stream whose client has to send another token. */
export const hasExpired = "The token has expired"

/** The error of a stream that ends early, unless the client is to resume by itself. */
const errorOf = (reason: Reason): string | undefined => {
  switch (reason) {
    case "deleted":
      return "The chat was deleted"
    case "expired":
      return hasExpired
    default:
      return undefined
  }
}

const failed = (errorText: string): Buffer => Buffer.from(textOf([{ type: "error", errorText }]) + done)

/** How a message is written from its beginning. */
export const encodingOf = ({ client, stream }: Pick<Beginning, "client" | "stream">): Encoding => ({
  start: Buffer.from(textOf(stream.begin(client)) + (stream.isEnded ? done : "")),
  isOver: stream.isEnded,
  events: frames => {
    try {
      for (const { data } of frames) stream.add(JSON.parse(data.toString("utf8")) as SessionEvent)
      const text = textOf(stream.next())
      return stream.isEnded ? Effect.succeed(Buffer.from(text + done)) : Buffer.from(text)
    } catch (error) {
      const logged = Effect.logError("The message of a turn cannot be shown", error)
      return Effect.as(logged, failed("The message cannot be shown"))
    }
  },
  end: reason => {
    if (reason === "complete") return Buffer.alloc(0)
    const error = errorOf(reason)
    return error === undefined ? undefined : failed(error)
  }
})
