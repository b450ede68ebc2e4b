/**
 * The interface of WebSockets for the code that serves them. A handler answers a request with an {@link Upgrade}; the
 * transport performs the handshake and makes the {@link Connection}.
 */

import { Cause, Effect, Random, Runtime, type Scope } from "effect"
import { Limits, type LimitsShape } from "../base/Limits.ts"
import * as MetricTags from "../base/Observability/MetricTags.ts"
import * as Supervision from "../base/Supervision.ts"
import { yieldToEventLoop } from "../base/Time/EventLoop.ts"
import * as Monotonic from "../base/Time/Monotonic.ts"
import { type ApiError, InternalServerError } from "./ApiError.ts"
import * as ConnectionMetrics from "./ConnectionLimits.ts"
import { DrainingSignal } from "./DrainingSignal.ts"

/** The content of a close frame. */
export interface Close {
  readonly code: number
  readonly reason: string
}

/** One WebSocket. It closes automatically if its client does not read, answers no ping, or violates the protocol. */
export interface Connection {
  /** Whether neither side has started to close the connection. */
  readonly isOpen: boolean
  /** Whether it is open and its unsent bytes are within the limit. */
  readonly hasRoom: boolean
  /**
   * The time since which the unsent bytes are over the limit and the client has read nothing; `undefined` otherwise.
   */
  readonly blockedSince: number | undefined
  /** Sends a text message; `onSent` is called once the operating system has taken it. */
  readonly send: (message: string | Buffer, onSent?: () => void) => void
  /**
   * Sends a {@link textFrame}, or several, in one write. They may be sent to many connections: large ones count once in
   * the budget of unsent bytes.
   */
  readonly sendFrame: (frame: Buffer) => void
  /** Stops reading from the client until {@link resume}. */
  readonly pause: () => void
  readonly resume: () => void
  readonly close: (close: Close) => void
  /** Ends the connection without a closing handshake. */
  readonly terminate: () => void
  /** Sends pings and enforces timeouts. Called once a second by the {@link ConnectionSet}. */
  readonly tick: (now: number) => void
}

/** The callbacks of a connection. All times are monotonic milliseconds. */
export interface Handler {
  /** The tenant whose share of the memory its arriving messages take. */
  readonly tenant?: string | undefined
  /** Called once, before anything else. */
  readonly onOpen: () => void
  readonly onMessage: (data: Buffer, isBinary: boolean) => void
  /** Called for each ping and pong. */
  readonly onControl: () => void
  /** Called when the unsent bytes exceed the limit: send nothing until {@link onRoom}. */
  readonly onBlocked: () => void
  readonly onRoom: () => void
  /** Called once a second while the connection is open. */
  readonly onTick: (now: number) => void
  /** Called when the connection starts to close, unless it breaks before. */
  readonly onClosing: () => void
  /** Called once, at the end of the connection. */
  readonly onClosed: () => void
}

/** The properties of an endpoint's connections. Times are in milliseconds. */
export interface Settings {
  /** Maximum bytes of a message from a client; a larger one closes the connection with 1009. */
  readonly messageBytes: number
  /** The subprotocol that is selected if a client offers it. */
  readonly subprotocol?: string
  /** Unsent bytes beyond which a connection is blocked. */
  readonly unsentBytes: number
  readonly pingInterval: number
  /** How long a client may take to answer a ping. */
  readonly pongTimeout: number
  /** Sent to a client that does not read. */
  readonly slow: Close
  /** Sent to a client that answers no ping. If absent, its connection is terminated. */
  readonly silent?: Close
  readonly goingAway: Close
  /** Connections are closed at random times within this interval as the service drains. */
  readonly drainInterval: number
}

export interface ConnectionSet {
  readonly settings: Settings
  readonly limits: Pick<LimitsShape, "messageFragments" | "messageSeconds">
  /** Of the metrics of its connections. */
  readonly tags: MetricTags.MetricTags
  /** Monotonic milliseconds. */
  readonly now: () => number
  /** Called by the transport with a connection whose handler is set. */
  readonly add: (connection: Connection) => void
  readonly remove: (connection: Connection) => void
  /** Cuts a connection whose handler has thrown, and logs that: what a client sends must not end the process. */
  readonly failed: (connection: Connection, defect: unknown) => void
  readonly size: number
  /** Waits until there is a connection. */
  readonly occupied: Effect.Effect<void>
}

/** Performs the handshake. If it fails, nothing was written and the handler is not made. */
export type Connect = (handlerOf: (connection: Connection) => Handler) => ApiError | undefined

/** The answer of a handler that turns a request into a WebSocket. */
export interface Upgrade {
  readonly connections: ConnectionSet
  /** Calls `connect`, or refuses. The transport calls this once, without an interruptible step in between. */
  readonly accept: (connect: Connect) => ApiError | undefined
}

export const noHandshake = "the request is not a WebSocket handshake"

/** A failed handshake: 500, whatever the reason. */
export const upgradeFailed = (reason: string): InternalServerError =>
  new InternalServerError({ error: `WebSocket upgrade failed: ${reason}` })

/** Closes its connections as the service drains, and at the end of the scope. */
export const connectionSet = (settings: Settings): Effect.Effect<ConnectionSet, never, DrainingSignal | Scope.Scope> =>
  Effect.gen(function* () {
    const draining = yield* DrainingSignal
    const clock = yield* Effect.clock
    const tags = yield* MetricTags.current
    const runFork = Runtime.runFork(yield* Effect.runtime<never>())
    const now = () => Monotonic.unsafeMillis(clock)
    const connections = new Set<Connection>()
    const occupancy = new Supervision.Occupancy()

    /** Calls each of the connections. One whose handler throws is closed, and the others are still called. */
    const callEach = (each: Iterable<Connection>, call: (connection: Connection) => void): Effect.Effect<void> =>
      Effect.suspend(() => {
        let cause: Cause.Cause<never> = Cause.empty
        for (const connection of each) {
          try {
            call(connection)
          } catch (error) {
            cause = Cause.parallel(cause, Cause.die(error))
            connection.terminate()
          }
        }
        return cause === Cause.empty
          ? Effect.void
          : Effect.logError("WebSockets were cut, as their handlers failed", cause)
      })
    const goAway = (connection: Connection) => connection.close(settings.goingAway)
    const closeAll = callEach(connections, goAway)
    const closeOne = (connection: Connection) =>
      Effect.flatMap(Random.nextIntBetween(0, settings.drainInterval), delay =>
        Effect.delay(callEach([connection], goAway), delay)
      )
    const drain =
      settings.drainInterval === 0
        ? closeAll
        : Effect.suspend(() => Effect.forEach([...connections], closeOne, { concurrency: "unbounded", discard: true }))
    const tick = Effect.suspend(() => {
      const time = now()
      return callEach(connections, connection => connection.tick(time))
    })

    yield* Effect.addFinalizer(() =>
      closeAll.pipe(
        Effect.zipRight(yieldToEventLoop),
        Effect.zipRight(
          Effect.sync(() => {
            for (const connection of connections) connection.terminate()
          })
        )
      )
    )
    yield* Supervision.tickScoped("ticks of WebSockets", "1 second", occupancy, tick)
    yield* Effect.forkScoped(Effect.interruptible(Effect.zipRight(draining.started, drain)))

    return {
      settings,
      limits: yield* Limits,
      tags,
      now,
      add: connection => {
        connections.add(connection)
        occupancy.set(true)
        ConnectionMetrics.webSockets.unsafeModify(1, tags)
        if (draining.hasStarted()) connection.close(settings.goingAway)
      },
      remove: connection => {
        if (connections.delete(connection)) ConnectionMetrics.webSockets.unsafeModify(-1, tags)
        occupancy.set(connections.size > 0)
      },
      failed: (connection, defect) => {
        connection.terminate()
        runFork(Effect.logError("A WebSocket was cut, as its handler failed", Cause.die(defect)))
      },
      get size() {
        return connections.size
      },
      occupied: occupancy.occupied
    }
  })

const headBytesOf = (length: number): number => (length < 126 ? 2 : length < 65_536 ? 4 : 10)

/** Writes the head of the frame of a text message of `length` bytes, final and not masked (RFC 6455, 5.2). */
const writeHead = (frames: Buffer, at: number, length: number): void => {
  frames[at] = 0x81
  if (length < 126) frames[at + 1] = length
  else if (length < 65_536) {
    frames[at + 1] = 126
    frames.writeUInt16BE(length, at + 2)
  } else {
    frames[at + 1] = 127
    frames.writeBigUInt64BE(BigInt(length), at + 2)
  }
}

export const textFrame = (text: string): Buffer => {
  const length = Buffer.byteLength(text)
  const head = headBytesOf(length)
  const frame = Buffer.allocUnsafe(head + length)
  writeHead(frame, 0, length)
  frame.write(text, head)
  return frame
}

/** Text messages, given as UTF-8, as consecutive frames. */
export const textFrames = (messages: ReadonlyArray<Buffer>): Buffer => {
  let bytes = 0
  for (const { length } of messages) bytes += headBytesOf(length) + length
  const frames = Buffer.allocUnsafe(bytes)
  let at = 0
  for (const message of messages) {
    writeHead(frames, at, message.length)
    at += headBytesOf(message.length)
    at += message.copy(frames, at)
  }
  return frames
}
