/** A request on the WebSocket of chats: where the stream of its message is written, as numbered chunks. */
import { Deferred, FiberId, type Option } from "effect"
import type { Outlet } from "../../Http/Reply.ts"
import { type Connection, textFrames } from "../../Http/WebSocket.ts"
import type { ClientsShape } from "../Clients.ts"
import * as GatewayMetrics from "../GatewayMetrics.ts"
import { closeCodes } from "../Protocol/Codes.ts"
import type { Failed } from "../Streams/Errors.ts"
import type { EventStream } from "../Streams/EventStream.ts"
import type { Thread } from "../Streams/Turns.ts"
import type { Followed } from "./Chats.ts"
import type { Form } from "./EventStream.ts"

/** A frame that is no chunk. All answers but `start` end the request. */
export type AnswerType = "start" | "end" | "no-active" | "error"

type Tags = ClientsShape["tags"]

/** The frame of an answer, which is counted as sent. */
export const frameOf = (tags: Tags, requestId: string, type: AnswerType, errorText?: string): Buffer => {
  GatewayMetrics.sent.increment(`chat_${type}`, tags)
  return textFrames([Buffer.from(JSON.stringify({ type, requestId, errorText }))])
}

/** One request of a connection. */
export class ChatRequest implements Outlet {
  /** The turn that it follows; none if nothing runs. */
  readonly followed = Deferred.unsafeMake<Option.Option<Followed>, Failed>(FiberId.none)
  /** The connection itself limits how long a client may not read: a number that always changes. */
  readonly sent = Number.NaN
  /** How its stream is written. */
  readonly form: Form
  stream: EventStream | undefined
  hasEnded = false
  private sequence = 0

  constructor(
    readonly id: string,
    readonly chat: Thread,
    /** The id of the message that it sends, or "". */
    readonly key: string,
    private readonly connection: Connection,
    private readonly tags: Tags,
    /** Called at the end, and with a stream that comes after it. */
    private readonly onEnd: () => void
  ) {
    const chunkOf = (chunk: object) => ({ type: "chunk", requestId: id, sequence: this.sequence++, chunk })
    this.form = {
      ping: Buffer.alloc(0),
      chunks: chunks => textFrames(Array.from(chunks, chunk => Buffer.from(JSON.stringify(chunkOf(chunk))))),
      end: () => frameOf(tags, id, "end"),
      failed: error => frameOf(tags, id, "error", error)
    }
  }

  get unsent(): number {
    return this.connection.hasRoom ? 0 : Number.POSITIVE_INFINITY
  }

  /** Begins to send the message. */
  follow(stream: EventStream): void {
    this.stream = stream
    if (this.hasEnded) this.onEnd()
    else stream.onOpen(this)
  }

  answer(type: AnswerType, errorText?: string): void {
    if (this.hasEnded) return
    this.write(frameOf(this.tags, this.id, type, errorText))
    if (type !== "start") this.end()
  }

  write(bytes: Uint8Array): void {
    if (this.hasEnded || bytes.length === 0) return
    this.connection.sendFrame(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length))
  }

  /** Ends the request. What the client has sent is carried out. */
  end(): void {
    if (this.hasEnded) return
    this.hasEnded = true
    this.onEnd()
  }

  /** Closes the connection, so that the client resumes all of its chats. */
  cut(): void {
    this.end()
    this.connection.close({ code: closeCodes.rateLimited.code, reason: closeCodes.rateLimited.name })
  }
}
