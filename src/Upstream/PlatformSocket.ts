/**
 * WebSockets to the agent platform: a port, so that what is built on it can be tested without a network.
 */
import type { ClientRequest, IncomingMessage } from "node:http"
import { Context, Duration, Effect, Exit, Layer, Schema, type Scope } from "effect"
import WebSocket from "ws"
import * as DebugLog from "../Observability/DebugLog.ts"
import * as FrameSummary from "../Observability/FrameSummary.ts"
import { codeIn, isUnreached, reasonOf, toldOf } from "./ConnectionReason.ts"
import { SpscQueue } from "./SpscQueue.ts"

/** The connection could not be opened. */
export class SocketRefused extends Schema.TaggedError<SocketRefused>()("SocketRefused", {
  /** The HTTP status, where the handshake was answered. */
  statusCode: Schema.optional(Schema.Int),
  retryAfter: Schema.optional(Schema.String),
  /** Whether no connection was opened at all. */
  isUnreached: Schema.optional(Schema.Boolean),
  message: Schema.String
}) {}

/** The connection has ended. */
export class SocketClosed extends Schema.TaggedError<SocketClosed>()("SocketClosed", {
  /** The close code (RFC 6455, 7.4), 1006 where the connection broke. */
  code: Schema.Int,
  /** Whether the other side sent a frame longer than allowed, and would again. */
  tooLarge: Schema.Boolean,
  message: Schema.String
}) {}

/** An open WebSocket; it is closed when its scope ends. */
export interface OpenSocket {
  /** Sends a text frame; success means that it has been handed to the network. */
  readonly send: (text: string) => Effect.Effect<void, SocketClosed>
  /** The next frame, in order; those received before the end come before `SocketClosed`. One taker at a time. */
  readonly take: Effect.Effect<string, SocketClosed>
  /** Asks the other side for a sign of life. */
  readonly ping: Effect.Effect<void>
  /** Waits until the other side is known to have read all that was sent so far: it answers a ping behind it. */
  readonly arrival: Effect.Effect<void, SocketClosed>
  /** Grows with each frame and each sign of life received. */
  readonly heard: () => number
  /** Whether it has ended, taken frames or not. */
  readonly isClosed: () => boolean
}

/** Opens WebSockets. */
export class PlatformSocket extends Context.Tag("causeway/PlatformSocket")<
  PlatformSocket,
  {
    readonly open: (
      url: string,
      headers: Readonly<Record<string, string>>
    ) => Effect.Effect<OpenSocket, SocketRefused, Scope.Scope>
  }
>() {}

/** What is buffered at most. */
export interface Limits {
  /** A longer frame ends the connection. */
  readonly frameBytes: number
  /**
   * Frames and characters received and not yet taken. At either, reading from the network stops until half is
   * taken; what the last read brought along (64 KiB) may lie above.
   */
  readonly waitingFrames: number
  readonly waitingCharacters: number
}

const defaults: Limits = {
  frameBytes: 8 * 1024 * 1024,
  waitingFrames: 256,
  waitingCharacters: 8 * 1024 * 1024
}

/** How long the other side has to answer the closing handshake. */
const closing = Duration.seconds(1)

const tooLargeCode = "WS_ERR_UNSUPPORTED_MESSAGE_LENGTH"

/** Frames on their way from a socket to their taker; a full one stops the reading. */
const inbox = (
  socket: WebSocket,
  received: SpscQueue<string, SocketClosed>,
  limits: Limits,
  debug: DebugLog.DebugLog | undefined
) => {
  let [frames, characters, heard, tooLarge] = [0, 0, 0, false]
  const isAbove = (share: number): boolean =>
    frames >= limits.waitingFrames * share || characters >= limits.waitingCharacters * share
  const onLife = (): void => {
    heard++
  }
  socket.on("ping", onLife)
  socket.on("pong", onLife)
  socket.on("message", (data: Buffer) => {
    heard++
    const text = data.toString("utf8")
    debug?.("Received a frame of an agent instance", { frame: FrameSummary.ofText(text) })
    frames++
    characters += text.length
    received.unsafeOffer(text)
    if (isAbove(1)) socket.pause()
  })
  socket.on("error", (error: Error) => {
    tooLarge ||= "code" in error && error.code === tooLargeCode
  })
  socket.on("close", (code, reason) => {
    const why = tooLarge ? `a frame is longer than ${limits.frameBytes} bytes` : reason.toString("utf8")
    const message = `The connection to the agent platform has ended (${code}${why === "" ? "" : `: ${why}`})`
    received.unsafeDone(Exit.fail(new SocketClosed({ code, tooLarge, message })))
  })
  const take = Effect.map(
    Effect.catchTag(received.take, "NoSuchElementException", error => Effect.die(error)),
    text => {
      frames--
      characters -= text.length
      if (socket.isPaused && !isAbove(0.5)) socket.resume()
      return text
    }
  )
  return { take, heard: () => heard }
}

/** A ping that waits for its answer. */
interface Ping {
  readonly number: number
  readonly resume: (effect: Effect.Effect<void, SocketClosed>) => void
}

/**
 * Asks for answers to numbered pings. Frames are read in order, so an answer tells that all before the ping was read.
 * A peer may answer the newest ping alone (RFC 6455, 5.5.3), so an answer counts for those before it, too.
 */
const arrivalOf = (socket: WebSocket): Effect.Effect<void, SocketClosed> => {
  const closed = new SocketClosed({ code: 1006, tooLarge: false, message: "The connection has ended" })
  let [last, waiting] = [0, [] as Ping[]]
  socket.on("pong", (data: Buffer) => {
    const number = Number(data.toString("latin1"))
    const answered = waiting.filter(ping => ping.number <= number)
    waiting = waiting.filter(ping => ping.number > number)
    for (const { resume } of answered) resume(Effect.void)
  })
  socket.on("close", () => {
    for (const { resume } of waiting.splice(0)) resume(closed)
  })
  return Effect.async(resume => {
    if (socket.readyState !== WebSocket.OPEN) return resume(closed)
    const ping: Ping = { number: ++last, resume }
    waiting.push(ping)
    socket.ping(String(ping.number))
    return Effect.sync(() => {
      waiting = waiting.filter(other => other !== ping)
    })
  })
}

/** Waits until the handshake has been answered. */
const opened = (socket: WebSocket): Effect.Effect<void, SocketRefused> =>
  Effect.async(resume => {
    const onOpen = (): void => {
      leave()
      resume(Effect.void)
    }
    const onError = (error: Error): void => {
      leave()
      const reason = reasonOf(error)
      resume(new SocketRefused({ isUnreached: isUnreached(reason), message: toldOf("agent platform", reason) }))
    }
    const onResponse = (_request: ClientRequest, response: IncomingMessage): void => {
      leave()
      resume(
        new SocketRefused({
          statusCode: response.statusCode,
          retryAfter: response.headers["retry-after"],
          message: `The agent platform answered ${response.statusCode} to connect`
        })
      )
    }
    const leave = (): void => {
      socket.off("open", onOpen)
      socket.off("error", onError)
      socket.off("unexpected-response", onResponse)
    }
    socket.on("open", onOpen)
    socket.on("error", onError)
    socket.on("unexpected-response", onResponse)
    return Effect.sync(leave)
  })

/** Closes a socket with 1001, and cuts it where the other side does not agree within a moment. */
const close = (socket: WebSocket): Effect.Effect<void> =>
  Effect.async<void>(resume => {
    if (socket.readyState === WebSocket.CLOSED) return resume(Effect.void)
    const onClose = (): void => resume(Effect.void)
    socket.once("close", onClose)
    if (socket.readyState === WebSocket.CONNECTING) socket.terminate()
    if (socket.readyState === WebSocket.OPEN) {
      // A paused socket would never read the other side's answer.
      socket.resume()
      socket.close(1001)
    }
    return Effect.sync(() => {
      socket.off("close", onClose)
    })
  }).pipe(
    // A finalizer cannot be interrupted, and a time limit interrupts what it limits.
    Effect.interruptible,
    Effect.timeoutOption(closing),
    Effect.zipRight(Effect.sync(() => socket.terminate()))
  )

/** Opens real WebSockets, without compression and without following redirects. */
export const make = (limits: Limits = defaults): Context.Tag.Service<PlatformSocket> => ({
  open: (url, headers) =>
    Effect.gen(function* () {
      const received = new SpscQueue<string, SocketClosed>()
      const debug = yield* DebugLog.make
      const socket = yield* Effect.acquireRelease(
        Effect.sync(
          () =>
            new WebSocket(url, {
              headers,
              followRedirects: false,
              maxPayload: limits.frameBytes,
              perMessageDeflate: false
            })
        ),
        close
      )
      // Frames may come along with the answer to the handshake, so listening begins before it.
      const { take, heard } = inbox(socket, received, limits, debug)
      const arrival = arrivalOf(socket)
      yield* Effect.onError(opened(socket), () => Effect.sync(() => socket.terminate()))
      const isClosed = (): boolean => socket.readyState !== WebSocket.OPEN
      return {
        send: text =>
          Effect.async(resume => {
            debug?.("Sending a frame to an agent instance", { frame: FrameSummary.ofText(text) })
            socket.send(text, error => {
              const code = error ? codeIn(reasonOf(error)) : undefined
              const message = `The connection ended while a frame was sent${code === undefined ? "" : ` (${code})`}`
              resume(error ? new SocketClosed({ code: 1006, tooLarge: false, message }) : Effect.void)
            })
          }),
        take,
        ping: Effect.sync(() => {
          if (!isClosed()) socket.ping()
        }),
        arrival,
        heard,
        isClosed
      }
    })
})

/** Opens real WebSockets. */
export const layer: Layer.Layer<PlatformSocket> = Layer.sync(PlatformSocket, () => make())
