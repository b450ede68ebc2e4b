/** A request on the WebSocket of chats: where the stream of its message is written, as numbered chunks. */
import { Deferred, FiberId, type Option } from "effect"
import type { Outlet } from "../../Http/Reply.ts"
import { type Connection, textFrames } from "../../Http/WebSocket.ts"
import type { ClientsShape } from "../Clients.ts"
import * as GatewayMetrics from "../GatewayMetrics.ts"
import { closeCodes } from "../Protocol/Codes.ts"
import type { Failed } from "../Streams/Errors.ts"
import type { EventStream } from "../Streams/EventStream.ts"
import type { Followed } from "./Chats.ts"
import type { Form } from "./EventStream.ts"

/** A frame that is no chunk. All answers but `start` end the request. */
export type AnswerType = "start" | "end" | "no-active" | "error"

const nothing = Buffer.alloc(0)

/** The frame of an answer, which is counted as sent. */
export const frameOf = (
  { tags }: Pick<ClientsShape, "tags">,
  requestId: string,
  type: AnswerType,
  errorText?: string
): Buffer => {
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
  private stream: EventStream | undefined
  private sequence = 0
  hasEnded = false

  constructor(
    readonly id: string,
    readonly chatId: string,
    private readonly connection: Connection,
    private readonly clients: Pick<ClientsShape, "tags">,
    private readonly onEnd: (request: ChatRequest, stream: EventStream | undefined) => void
  ) {
    this.form = {
      ping: nothing,
      chunks: chunks => textFrames(Array.from(chunks, chunk => this.chunkOf(chunk))),
      end: () => frameOf(clients, id, "end"),
      failed: error => frameOf(clients, id, "error", error)
    }
  }

  get unsent(): number {
    return this.connection.hasRoom ? 0 : Number.POSITIVE_INFINITY
  }

  /** Begins to send the message. */
  follow(stream: EventStream): void {
    this.stream = stream
    if (this.hasEnded) this.onEnd(this, stream)
    else stream.onOpen(this)
  }

  /** To be called when the connection has room again. */
  onRoom(): void {
    if (!this.hasEnded) this.stream?.onDrain()
  }

  /** Ends the stream with the reason that the token has expired. */
  expire(): void {
    this.stream?.end("expired")
  }

  answer(type: AnswerType, errorText?: string): void {
    if (this.hasEnded) return
    this.write(frameOf(this.clients, this.id, type, errorText))
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
    this.onEnd(this, this.stream)
  }

  /** Closes the connection, so that the client resumes all of its chats. */
  cut(): void {
    this.end()
    this.connection.close({ code: closeCodes.rateLimited.code, reason: closeCodes.rateLimited.name })
  }

  private chunkOf(chunk: object): Buffer {
    return Buffer.from(JSON.stringify({ type: "chunk", requestId: this.id, sequence: this.sequence++, chunk }))
  }
}
