/** One WebSocket on `ws`: its messages, pings, limits and end. */

import type { Duplex } from "node:stream"
import { WebSocket } from "ws"
import { UnfinishedMessage } from "../../base/UnfinishedMessage.ts"
import * as ConnectionMetrics from "../ConnectionLimits.ts"
import { type BodyBudget, heldBodyOf } from "../Server/BodyBudget.ts"
import { type Account, accountOf, type Protocol, takenBy } from "../Server/UnsentBudget.ts"
import * as Port from "../WebSocket.ts"

/** Milliseconds in which a client must read something while it is blocked, or while a slow one closes. */
const readTimeout = 30_000

/** Timeout of a closing handshake, in milliseconds. */
const closeTimeout = 5_000

/** Frames from this size on are counted once for all receivers; tracking smaller ones costs more than they do. */
const sharedFrameBytes = 4096

/** Maximum number of frames that are read from a closing connection. */
const maxIgnored = 100

/** Reasons for the codes with which `ws` itself closes a connection whose client violates the protocol. */
const reasons: Readonly<Record<number, string>> = {
  1002: "protocol_error",
  1007: "invalid_utf8",
  1008: "too_many_fragments",
  1009: "message_too_big"
}

/** The error of `ws` with which it closes a connection with 1008. */
const tooManyFragments = "WS_ERR_TOO_MANY_BUFFERED_PARTS"

/** Sent to a client whose message is refused while it arrives, by the reason in the metric. */
const refusals = {
  message_time: { code: 4011, reason: "message_timeout" },
  message_bytes: { code: 4001, reason: "rate_limited" }
} as const satisfies Readonly<Record<string, Port.Close>>

const connectionOf = Symbol("causeway/WebSocketConnection")

interface Wire extends Duplex {
  [connectionOf]?: Connection
}

/**
 * Whether the client reads. Bytes that the operating system accepts while it has room say nothing about the client; if
 * it accepts more after it was full, the client has read.
 */
class ReadProgress {
  #wasFull = false
  #taken = 0
  #sentByKernel = 0

  constructor(
    private readonly wire: Duplex,
    private readonly account: Account | undefined
  ) {}

  /** Whether the client has visibly read something since the last call. */
  check(): boolean {
    const taken = takenBy(this.wire)
    const sentByKernel = this.account?.sentByKernel ?? 0
    const hasRead = (this.#wasFull && taken !== this.#taken) || sentByKernel !== this.#sentByKernel
    this.#wasFull = this.wire.writableLength > 0
    this.#taken = taken
    this.#sentByKernel = sentByKernel
    return hasRead
  }
}

/** A WebSocket of `ws` with a reference to its connection, so that all of them share their listeners. */
export class Socket extends WebSocket {
  connection!: Connection

  override close(code?: number, data?: string | Buffer): void {
    super.close(code, data ?? (code === undefined ? undefined : reasons[code]))
  }
}

const text = { binary: false }

/** Whether what `ws` sends may overtake what was written to the connection before, as in Bun, which has its own `ws`. */
const overtakes = process.versions.bun !== undefined

/** Written behind a frame, its callback is called once the system has taken that. */
const nothing = Buffer.alloc(0)

/** A connection by `ws`. */
export class Connection implements Port.Connection, Protocol {
  readonly #account: Account | undefined
  readonly #progress: ReadProgress
  #blockedSince: number | undefined
  #closingSince: number | undefined
  /** The client is too slow: it may take long to read the frames before the close frame. */
  #isSlow = false
  /** When the unanswered ping was sent, or when the client last read something after that. */
  #pingedAt: number | undefined
  #nextPing: number
  /** Frames that were received while it closed. */
  #ignored = 0
  readonly #arriving: UnfinishedMessage
  /** When the message that is arriving began, or when the connection was last read from after a pause. */
  #arrivingSince: number | undefined
  /** Absent only if it could not be made. */
  #handler!: Port.Handler

  /**
   * @param wire the transport of the WebSocket
   * @param ownBudget that of the endpoint's arriving messages, unless the server has one
   */
  constructor(
    private readonly socket: Socket,
    private readonly wire: Wire,
    private readonly connections: Port.ConnectionSet,
    private readonly ownBudget: BodyBudget
  ) {
    this.#account = accountOf(wire)
    this.#progress = new ReadProgress(wire, this.#account)
    this.#nextPing = connections.now() + connections.settings.pingInterval
    this.#arriving = new UnfinishedMessage(connections.limits.messageFragments)
    ownBudget.open(wire)
    if (this.#account !== undefined) this.#account.protocol = this
    socket.connection = this
    socket.on("message", onMessage).on("ping", onControl).on("pong", onControl)
    socket.on("error", onError).on("close", onClose)
    wire[connectionOf] = this
    // After the listener of `ws`.
    wire.on("data", onBytes)
  }

  /** Serves the connection. To be called once, in the same turn of the event loop. */
  open(handlerOf: (connection: Port.Connection) => Port.Handler): void {
    try {
      this.#handler = handlerOf(this)
      this.#handler.onOpen()
    } catch (error) {
      // The protocol is already switched: no other answer can be sent.
      this.terminate()
      throw error
    }
  }

  get isOpen(): boolean {
    return this.#closingSince === undefined && this.socket.readyState === WebSocket.OPEN
  }

  get hasRoom(): boolean {
    return this.#blockedSince === undefined && this.isOpen
  }

  get blockedSince(): number | undefined {
    return this.#blockedSince
  }

  send(message: string | Buffer, onSent?: () => void): void {
    const onWritten = (): void => {
      this.#onWritten()
      onSent?.()
    }
    if (overtakes) this.wire.write(Port.textFrames([Buffer.from(message)]), onWritten)
    else this.socket.send(message, text, onWritten)
    if (this.wire.writableLength === 0) return
    this.#account?.recount()
    this.#checkRoom()
  }

  // Without compression `ws` writes each whole frame at once, so that frames cannot be interleaved.
  sendFrame(frame: Buffer): void {
    // A callback takes a tick of its own, and is of use only if the system has not taken the frame at once.
    this.wire.write(frame)
    if (this.wire.writableLength === 0) return
    this.wire.write(nothing, this.#onWritten)
    if (frame.length >= sharedFrameBytes) this.#account?.share(frame)
    else this.#account?.recount()
    this.#checkRoom()
  }

  pause(): void {
    this.socket.pause()
  }

  resume(): void {
    this.socket.resume()
  }

  close({ code, reason }: Port.Close): void {
    if (this.#closingSince !== undefined) return
    this.#isSlow = code === this.connections.settings.slow.code || this.#blockedSince !== undefined
    this.#beginClosing()
    this.socket.close(code, reason)
    // A paused socket would never read the client's close frame.
    this.socket.resume()
  }

  closeSlow(): void {
    this.close(this.connections.settings.slow)
  }

  terminate(): void {
    this.socket.terminate()
  }

  tick(now: number): void {
    this.ownBudget.tick(now)
    if (this.#closingSince !== undefined) {
      if (this.#isSlow && this.#progress.check()) this.#closingSince = now
      if (now - this.#closingSince >= (this.#isSlow ? readTimeout : closeTimeout)) this.terminate()
      return
    }
    // The client has started to close.
    if (!this.isOpen) return this.#beginClosing()
    if (this.#blockedSince === undefined) this.#ping(now)
    else if (this.#progress.check()) this.#blockedSince = now
    else if (now - this.#blockedSince >= readTimeout) this.closeSlow()
    this.#limitArrival(now)
    if (this.isOpen) this.#handler.onTick(now)
  }

  /** Counts the bytes that the client has sent, once `ws` has them. */
  onBytes(chunk: Buffer): void {
    // After a close frame, or a frame that violates the protocol, `ws` stops listening and nothing is stored.
    if (this.wire.listenerCount("data") === 1) return
    if (this.#arriving.read(chunk)) this.#endArrival()
    const { bytes } = this.#arriving
    if (bytes === 0) return
    this.#arrivingSince ??= this.connections.now()
    const held = heldBodyOf(this.wire)
    if (held === undefined) return
    held.holder = this.#handler?.tenant ?? ""
    held.add(bytes - held.bytes, () => this.#refuseArriving("message_bytes"))
  }

  /** The close code says what went wrong. */
  onError(error: Error): void {
    if ("code" in error && error.code === tooManyFragments) {
      ConnectionMetrics.countCut("message_fragments", this.connections.tags)
    }
  }

  onMessage(data: Buffer, isBinary: boolean): void {
    if (this.#ignores()) return
    this.#pingedAt = undefined
    try {
      this.#handler.onMessage(data, isBinary)
    } catch (defect) {
      this.connections.failed(this, defect)
    }
  }

  onControl(): void {
    if (this.#ignores()) return
    this.#pingedAt = undefined
    this.#handler.onControl()
  }

  onClosed(): void {
    this.connections.remove(this)
    this.#endArrival()
    this.#handler?.onClosed()
  }

  #endArrival(): void {
    if (this.#arrivingSince === undefined) return
    this.#arrivingSince = undefined
    heldBodyOf(this.wire)?.release()
  }

  #limitArrival(now: number): void {
    if (this.#arrivingSince === undefined) return
    // Nothing is read from a client that does not read.
    if (this.#blockedSince !== undefined) this.#arrivingSince = now
    else if (now - this.#arrivingSince >= 1000 * this.connections.limits.messageSeconds) {
      this.#refuseArriving("message_time")
    }
  }

  /** Closes the connection because of the message that is arriving. What follows is read and discarded. */
  #refuseArriving(reason: keyof typeof refusals): void {
    ConnectionMetrics.countCut(reason, this.connections.tags)
    if (this.#closingSince !== undefined) return this.terminate()
    this.close(refusals[reason])
    this.wire.removeAllListeners("data")
    this.wire.resume()
    if (reason !== "message_bytes") return
    // Others need the memory, which `ws` has until the connection ends. A client that does not read gets no reason.
    if (this.wire.writableLength > 0) this.terminate()
    else this.wire.end(() => this.wire.destroy())
  }

  /** While it closes, frames are ignored, and many of them are not even read. */
  #ignores(): boolean {
    if (this.#closingSince === undefined) return false
    if (++this.#ignored > maxIgnored) this.socket.pause()
    return true
  }

  #ping(now: number): void {
    const { pingInterval, pongTimeout, silent } = this.connections.settings
    if (this.#pingedAt !== undefined) {
      // The client answers only after it has read everything before the ping: while it reads, it is alive.
      if (this.#progress.check()) this.#pingedAt = now
      this.#account?.watch()
      if (now - this.#pingedAt >= pongTimeout) return silent === undefined ? this.terminate() : this.close(silent)
    }
    if (now >= this.#nextPing) {
      this.#nextPing = now + pingInterval
      if (this.#pingedAt === undefined) {
        this.#pingedAt = now
        this.#progress.check()
      }
      this.socket.ping()
    }
    // The answers to the client's own pings count too.
    this.#checkRoom()
  }

  #beginClosing(): void {
    this.#closingSince = this.connections.now()
    this.#progress.check()
    this.#handler.onClosing()
  }

  #checkRoom(): void {
    if (this.#blockedSince !== undefined || this.wire.writableLength <= this.connections.settings.unsentBytes) return
    // It may just have been closed, to free memory for others.
    if (!this.isOpen) return
    this.#blockedSince = this.connections.now()
    this.#pingedAt = undefined
    this.#progress.check()
    this.#handler.onBlocked()
  }

  /** Called whenever the operating system has accepted bytes. */
  readonly #onWritten = (): void => {
    if (this.#account !== undefined && this.#account.bytes > 0) this.#account.unshareSent()
    if (this.#blockedSince === undefined || this.wire.writableLength > this.connections.settings.unsentBytes) return
    this.#blockedSince = undefined
    this.#pingedAt = undefined
    if (this.isOpen) this.#handler.onRoom()
  }
}

// The shared listeners. `ws` passes messages as one buffer because of the default `binaryType`.

function onMessage(this: WebSocket, data: unknown, isBinary: boolean): void {
  ;(this as Socket).connection.onMessage(data as Buffer, isBinary)
}

function onControl(this: WebSocket): void {
  ;(this as Socket).connection.onControl()
}

function onClose(this: WebSocket): void {
  ;(this as Socket).connection.onClosed()
}

function onBytes(this: Wire, chunk: Buffer): void {
  this[connectionOf]?.onBytes(chunk)
}

function onError(this: WebSocket, error: Error): void {
  ;(this as Socket).connection.onError(error)
}
