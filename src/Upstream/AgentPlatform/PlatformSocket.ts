/** WebSockets to the agent platform, as a port, so that its users can be tested without a network. */

import type { ClientRequest, IncomingMessage } from "node:http"
import type { Duplex } from "node:stream"
import { Context, Data, Duration, Effect, Exit, Layer, Metric, type Scope } from "effect"
import WebSocket from "ws"
import * as Direct from "../../base/Direct.ts"
import { Inbox } from "../../base/Inbox.ts"
import * as DebugLog from "../../base/Observability/DebugLog.ts"
import * as FrameSummary from "../../base/Observability/LogValue.ts"
import * as MetricTags from "../../base/Observability/MetricTags.ts"
import { turnOf } from "../../base/Time/PacedWork.ts"
import { UnfinishedMessage } from "../../base/UnfinishedMessage.ts"
import { eventBytes, OversizedFrame, unfinishedBytes } from "../PlatformEvent.ts"
import {
  codeIn,
  connectionFailure,
  failWithStatus,
  reasonOf,
  type UpstreamFailure
} from "../Resilience/UpstreamFailure.ts"

/**
 * The connection has ended. It is no `Error`: the stack of an error keeps the objects whose methods were running, which
 * are the socket and what it has received, until the next connection is open.
 */
export class SocketClosed extends Data.TaggedClass("SocketClosed")<{
  /** The close code (RFC 6455, 7.4), 1006 where the connection broke. */
  readonly code: number
  /** Whether the peer sent a frame longer than allowed. It would do so again. */
  readonly tooLarge: boolean
  readonly message: string
}> {}

/** An open WebSocket, until its scope ends. */
export interface OpenSocket {
  /** Sends a text frame; succeeds once it is written to the network. */
  readonly send: (text: string) => Effect.Effect<void, SocketClosed>
  /**
   * Takes the next frame, a large one in its turn among those of all sockets. Frames received before the end come before
   * `SocketClosed`. For one consumer. The effect is direct for small frames.
   */
  readonly take: Effect.Effect<string | OversizedFrame, SocketClosed>
  /** Sends a ping. */
  readonly ping: Effect.Effect<void>
  /** Waits until the peer has read all that was sent so far, which its answer to a ping behind it proves. */
  readonly acknowledged: Effect.Effect<void, SocketClosed>
  /** Frames received so far, and pings and pongs between them. */
  readonly received: () => number
  /** Whether it has ended, even if frames wait to be taken. */
  readonly isClosed: () => boolean
}

/** Opens WebSockets. */
export class PlatformSocket extends Context.Tag("causeway/PlatformSocket")<
  PlatformSocket,
  {
    readonly open: (
      url: string,
      headers: Readonly<Record<string, string>>
    ) => Effect.Effect<OpenSocket, UpstreamFailure, Scope.Scope>
  }
>() {}

/** The limits of one socket. */
export interface Limits {
  /** A longer frame ends the connection. */
  readonly frameBytes: number
  /** A longer frame is not decoded. */
  readonly eventBytes: number
  /**
   * Frames and bytes received and not taken. At either limit, reading from the network pauses until half is taken. The
   * last read (64 KiB) may exceed the limit.
   */
  readonly waitingFrames: number
  readonly waitingBytes: number
}

const defaults: Limits = {
  frameBytes: eventBytes.most,
  eventBytes: eventBytes.default,
  waitingFrames: 256,
  // Little, as a socket that is read delivers several MiB in one iteration of the event loop.
  waitingBytes: 256 * 1024
}

/** Most fragments of a frame: 512 bytes each on average, if it is as long as it may be. */
const fragmentsOf = ({ frameBytes }: Limits): number => Math.ceil(frameBytes / 512)

/**
 * The bytes that have arrived of unfinished frames, over all sockets. Above the limit the socket with the most is ended
 * and connects again, so that a platform that finishes no frame cannot fill the memory.
 */
export class ArrivingFrames {
  private readonly frames = new Map<object, { readonly bytes: number; readonly abandon: () => void }>()
  private total = 0

  /** @param onCut called when a socket is ended */
  constructor(
    private readonly limit: number,
    private readonly onCut: () => void = () => {}
  ) {}

  /** Records what a socket holds. `abandon` ends the socket. */
  record(socket: object, bytes: number, abandon: () => void): void {
    const before = this.frames.get(socket)?.bytes ?? 0
    if (bytes === before) return
    this.total += bytes - before
    if (bytes === 0) this.frames.delete(socket)
    else this.frames.set(socket, { bytes, abandon })
    if (this.total > this.limit) this.abandonLargest()
  }

  private abandonLargest(): void {
    const [first, ...others] = this.frames
    if (first === undefined) return
    const [socket, { abandon }] = others.reduce((a, b) => (b[1].bytes > a[1].bytes ? b : a), first)
    this.record(socket, 0, abandon)
    this.onCut()
    abandon()
  }
}

/** How long the peer has to answer the closing handshake. */
const closeTimeout = Duration.seconds(1)

const tooLargeCode = "WS_ERR_UNSUPPORTED_MESSAGE_LENGTH"

/** The queue of received frames; if it is full, reading pauses. */
const receive = (
  socket: WebSocket,
  queue: Inbox<Buffer | OversizedFrame, SocketClosed>,
  limits: Limits,
  allArriving: ArrivingFrames,
  debug: DebugLog.DebugLog | undefined
) => {
  let [frames, bytes, received, tooLarge] = [0, 0, 0, false]
  const isAbove = (share: number): boolean =>
    frames >= limits.waitingFrames * share || bytes >= limits.waitingBytes * share
  const arriving = new UnfinishedMessage(fragmentsOf(limits))
  let isAbandoned = false
  const abandon = (): void => {
    isAbandoned = true
    socket.terminate()
  }
  const onBytes = (chunk: Buffer): void => {
    if (isAbandoned) return
    arriving.read(chunk)
    allArriving.record(socket, arriving.bytes, abandon)
  }
  // After the listener of `ws`: before it, the first listener would get the bytes that came with the handshake.
  // The `ws` of Bun shows no connection; there the bytes of unfinished frames are not counted.
  socket.on("upgrade", ({ socket: wire }: { readonly socket: Duplex | null }) =>
    socket.once("open", () => wire?.on("data", onBytes))
  )
  const onControlFrame = (): void => {
    // A peer that answers pings and does not finish its message would be read from without a limit.
    if (arriving.bytes === 0) received++
  }
  socket.on("ping", onControlFrame)
  socket.on("pong", onControlFrame)
  socket.on("message", (data: Buffer) => {
    received++
    frames++
    if (data.length > limits.eventBytes) {
      queue.offer(new OversizedFrame(`has ${data.length} bytes; the limit is ${limits.eventBytes}`))
    } else {
      bytes += data.length
      queue.offer(data)
    }
    if (isAbove(1)) socket.pause()
  })
  socket.on("error", (error: Error) => {
    tooLarge ||= "code" in error && error.code === tooLargeCode
  })
  socket.on("close", (code, reason) => {
    allArriving.record(socket, 0, abandon)
    const why = tooLarge
      ? `a frame is longer than ${limits.frameBytes} bytes`
      : isAbandoned
        ? "unfinished frames take too much memory"
        : reason.toString("utf8")
    const message = `The connection to the agent platform has ended (${code}${why === "" ? "" : `: ${why}`})`
    queue.end(Exit.fail(new SocketClosed({ code, tooLarge, message })))
  })
  const decode = (data: Buffer): string => {
    const text = data.toString("utf8")
    debug?.("Received a frame of an agent instance", { frame: FrameSummary.ofText(text) })
    return text
  }
  const take = Direct.flatMap(queue.take, (frame): Effect.Effect<string | OversizedFrame> => {
    frames--
    if (frame instanceof OversizedFrame) return Exit.succeed(frame)
    bytes -= frame.length
    if (socket.isPaused && !isAbove(0.5)) socket.resume()
    return Direct.map(turnOf(frame.length), () => decode(frame))
  })
  return { take, received: () => received }
}

interface Ping {
  readonly number: number
  readonly resume: (effect: Effect.Effect<void, SocketClosed>) => void
}

/**
 * Numbered pings. Frames are read in order, so an answer proves that all before the ping was read. A peer may answer
 * only the newest ping (RFC 6455, 5.5.3), so an answer counts for those before it, too.
 */
const acknowledgments = (socket: WebSocket): Effect.Effect<void, SocketClosed> => {
  const closed = new SocketClosed({ code: 1006, tooLarge: false, message: "The connection has ended" })
  let [last, waiting] = [0, [] as Ping[]]
  socket.on("pong", (data: Buffer) => {
    const number = Number(data.toString("latin1"))
    const answered = waiting.filter(ping => ping.number <= number)
    waiting = waiting.filter(ping => ping.number > number)
    for (const { resume } of answered) resume(Effect.void)
  })
  socket.on("close", () => {
    for (const { resume } of waiting.splice(0)) resume(Effect.fail(closed))
  })
  return Effect.async(resume => {
    if (socket.readyState !== WebSocket.OPEN) return resume(Effect.fail(closed))
    const ping: Ping = { number: ++last, resume }
    waiting.push(ping)
    socket.ping(String(ping.number))
    return Effect.sync(() => {
      waiting = waiting.filter(other => other !== ping)
    })
  })
}

/** Waits until the handshake has been answered. */
const opened = (socket: WebSocket): Effect.Effect<void, UpstreamFailure> =>
  Effect.async(resume => {
    socket.once("open", () => resume(Effect.void))
    socket.once("error", error => resume(connectionFailure("connect", "agent platform", reasonOf(error))))
    socket.once("unexpected-response", (_request: ClientRequest, { headers, statusCode }: IncomingMessage) => {
      const message = `The agent platform answered ${statusCode} to connect`
      resume(failWithStatus("connect", statusCode, headers["retry-after"], message))
    })
  })

/** Closes a socket with 1001, and terminates it if the peer does not answer in time. */
const close = (socket: WebSocket): Effect.Effect<void> =>
  Effect.async<void>(resume => {
    if (socket.readyState === WebSocket.CLOSED) return resume(Effect.void)
    const onClose = (): void => resume(Effect.void)
    socket.once("close", onClose)
    if (socket.readyState === WebSocket.CONNECTING) socket.terminate()
    if (socket.readyState === WebSocket.OPEN) {
      // A paused socket would not read the peer's answer.
      socket.resume()
      socket.close(1001)
    }
    return Effect.sync(() => {
      socket.off("close", onClose)
    })
  }).pipe(
    // In a finalizer: without it, the timeout could not interrupt.
    Effect.interruptible,
    Effect.timeoutOption(closeTimeout),
    Effect.zipRight(Effect.sync(() => socket.terminate()))
  )

/** Counts connections that were ended because unfinished events take too much memory. */
export const cut = Metric.counter("agent_platform_connections_cut_total", {
  description: "Connections to agent instances that were ended because unfinished events took too much memory",
  incremental: true
})

/** Opens real WebSockets, without compression and without following redirects. */
export const make = (
  limits: Limits,
  allArriving = new ArrivingFrames(unfinishedBytes.default)
): Context.Tag.Service<PlatformSocket> => ({
  open: (url, headers) =>
    Effect.gen(function* () {
      const queue = new Inbox<Buffer | OversizedFrame, SocketClosed>()
      const debug = yield* DebugLog.make
      const socket = yield* Effect.acquireRelease(
        Effect.sync(
          () =>
            new WebSocket(url, {
              headers,
              followRedirects: false,
              maxPayload: limits.frameBytes,
              maxFragments: fragmentsOf(limits),
              perMessageDeflate: false
            })
        ),
        close
      )
      // Frames may arrive together with the answer to the handshake.
      const { take, received } = receive(socket, queue, limits, allArriving, debug)
      const acknowledged = acknowledgments(socket)
      yield* Effect.onError(opened(socket), () => Effect.sync(() => socket.terminate()))
      const isClosed = (): boolean => socket.readyState !== WebSocket.OPEN
      return {
        send: text =>
          Effect.async(resume => {
            debug?.("Sending a frame to an agent instance", { frame: FrameSummary.ofText(text) })
            socket.send(text, error => {
              const code = error ? codeIn(reasonOf(error)) : undefined
              const message = `The connection ended while a frame was sent${code === undefined ? "" : ` (${code})`}`
              resume(error ? Effect.fail(new SocketClosed({ code: 1006, tooLarge: false, message })) : Effect.void)
            })
          }),
        take,
        ping: Effect.sync(() => {
          if (!isClosed()) socket.ping()
        }),
        acknowledged,
        received,
        isClosed
      }
    })
})

/** Opens real WebSockets. A longer frame than `eventBytes` is not decoded. */
export const layer = ({
  eventBytes: most = defaults.eventBytes,
  unfinishedBytes: all = unfinishedBytes.default
}: {
  readonly eventBytes?: number
  readonly unfinishedBytes?: number
}): Layer.Layer<PlatformSocket> =>
  Layer.effect(
    PlatformSocket,
    Effect.map(MetricTags.current, tags => {
      MetricTags.register([cut], tags)
      return make({ ...defaults, eventBytes: most }, new ArrivingFrames(all, () => cut.unsafeUpdate(1, tags)))
    })
  )
