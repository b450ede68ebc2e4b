/**
 * A UI message stream as bytes: over HTTP as Server-Sent Events, and over a WebSocket in frames.
 *
 * A stream that is whole ends as its form says. For a client that has to resume, the connection is closed: the package
 * takes a clean end for success, and a closed connection for a failure of the network, after which it resumes.
 */
import { Effect } from "effect"
import type { SessionEvent } from "../../Client/SessionModel.ts"
import type { Encoding, Reason } from "../Streams/EventStream.ts"
import type { Chunk } from "./Chunks.ts"
import type { MessageStream } from "./MessageStream.ts"
import type { UiPart } from "./UiMessage.ts"

/** The header fields of the answer. */
export const headers = {
  "x-vercel-ai-ui-message-stream": "v1",
  "cache-control": "no-cache, no-transform",
  "x-accel-buffering": "no"
}

/** What the chunks of a stream are written as. */
export interface Form extends Pick<Encoding, "ping"> {
  readonly chunks: (chunks: Iterable<Chunk>) => Uint8Array
  /** The end of a whole message. */
  readonly end: () => Uint8Array
  /** The end of a message that is not whole, although the client is not to resume it. */
  readonly failed: (errorText: string) => Uint8Array
}

const textOf = (chunks: Iterable<Chunk>): string =>
  Array.from(chunks, chunk => `data: ${JSON.stringify(chunk)}\n\n`).join("")

const done = "data: [DONE]\n\n"

/** Over HTTP. */
export const serverSentEvents: Form = {
  chunks: chunks => Buffer.from(textOf(chunks)),
  end: () => Buffer.from(done),
  failed: errorText => Buffer.from(textOf([{ type: "error", errorText }]) + done)
}

/** The errors of streams that end early, unless the client is to resume by itself. */
const errors: { readonly [Why in Reason]?: string } = {
  deleted: "The chat was deleted",
  // The client has to send another token.
  expired: "The token has expired"
}

/** How a message is written from its beginning, for a client that has these parts of it. */
export const encodingOf = (stream: MessageStream, client: ReadonlyArray<UiPart> | undefined, form: Form): Encoding => {
  const written = (chunks: Iterable<Chunk>): Uint8Array => {
    const bytes = form.chunks(chunks)
    return stream.isEnded ? Buffer.concat([bytes, form.end()]) : bytes
  }
  return {
    ...(form.ping && { ping: form.ping }),
    start: written(stream.begin(client)),
    isOver: stream.isEnded,
    events: frames => {
      try {
        for (const { data } of frames) stream.add(JSON.parse(data.toString("utf8")) as SessionEvent)
        const bytes = written(stream.next())
        return stream.isEnded ? Effect.succeed(bytes) : bytes
      } catch (error) {
        const logged = Effect.logError("The message of a turn cannot be shown", error)
        return Effect.as(logged, form.failed("The message cannot be shown"))
      }
    },
    end: reason => {
      const error = errors[reason]
      if (reason === "complete") return Buffer.alloc(0)
      return error === undefined ? undefined : form.failed(error)
    }
  }
}
