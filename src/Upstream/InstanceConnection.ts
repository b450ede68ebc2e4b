/**
 * The connection to a running agent instance, which reconnects while the instance exists.
 */
import {
  Duration,
  Effect,
  Either,
  ExecutionStrategy,
  Exit,
  FiberRef,
  HashMap,
  Metric,
  PubSub,
  Schedule,
  Scope,
  Stream
} from "effect"
import * as MetricTags from "../MetricTags.ts"
import * as Monotonic from "../Monotonic.ts"
import * as FrameSender from "./FrameSender.ts"
import * as PlatformEvent from "./PlatformEvent.ts"
import type { OpenSocket, SocketClosed } from "./PlatformSocket.ts"
import * as Retries from "./Resilience/Retries.ts"
import { UpstreamFailure } from "./Resilience/UpstreamFailure.ts"
import { SpscQueue, type Taken } from "./SpscQueue.ts"

/** `closed` is final: the instance has ended, the platform refuses the connection, or the scope has ended. */
export type ConnectionState = "connected" | "reconnecting" | "closed"

/**
 * Messages that were sent on a lost connection and may or may not have arrived. It follows all events of that
 * connection.
 */
export class Undelivered {
  constructor(readonly turnIds: ReadonlyArray<string>) {}
}

export type Received = PlatformEvent.PlatformEvent | Undelivered

/** A connection to one instance. */
export interface InstanceConnection<E> {
  /**
   * Sends a frame, at most once and in the order of calls. Waits while it reconnects.
   *
   * After a failure the frame was not sent. After a success it may still be lost with the connection; lost messages are
   * reported as {@link Undelivered}.
   */
  readonly send: FrameSender.Send<E>
  /** Waits until it is connected. Fails if it is closed. */
  readonly ready: Effect.Effect<void, E>
  /**
   * Takes the instance's events in order, and undelivered messages, for one consumer. It is done when the instance has
   * ended, and fails when the platform refuses the connection. A slow consumer causes back-pressure on the network.
   */
  readonly take: Effect.Effect<Taken<Received>, E>
  /** The current state and its changes. A slow consumer may miss some, but never the last one. */
  readonly states: Stream.Stream<ConnectionState>
}

export interface Options {
  /** Opens a socket that resumes after an event. `again` is `false` for the first socket. */
  readonly dial: (after: string | undefined, again: boolean) => Effect.Effect<OpenSocket, UpstreamFailure, Scope.Scope>
  /** The id of the event after which the first socket resumes. */
  readonly after: string | undefined
  /** For logs. */
  readonly instanceId: string
}

const reconnects = Metric.counter("agent_platform_reconnects_total", {
  description: "Connections to agent instances that were re-established",
  incremental: true
})

const rejectedFrames = Metric.counter("agent_platform_frames_rejected_total", {
  description: "Frames from agent instances that are not events",
  incremental: true
})

/** Registers the metrics with 0. */
export const register = (tags: MetricTags.MetricTags): void => MetricTags.register([reconnects, rejectedFrames], tags)

/** Maximum number of events that wait to be consumed, in addition to frames that wait in the socket. */
const waitingEvents = 64

/** A connection without data is pinged after this time, and closed after the same time again. */
const silence = Duration.seconds(20)

/** A connection that lasted this long or delivered an event resets the backoff. */
const stable = Duration.seconds(10)

const operation = "connect"

const failure = (reason: UpstreamFailure["reason"], message: string): UpstreamFailure =>
  new UpstreamFailure({ operation, reason, message })

/** Whether a refusal says that the instance does not exist. */
const saysGone = ({ statusCode }: UpstreamFailure): boolean => statusCode === 404 || statusCode === 410

/** Whether a refusal is permanent. */
const isFinal = (refusal: UpstreamFailure): boolean =>
  refusal.reason === "status" &&
  refusal.statusCode !== undefined &&
  refusal.statusCode >= 400 &&
  refusal.statusCode < 500 &&
  !Retries.isTransient(refusal)

interface Progress {
  /** Whether it has delivered an event. */
  any: boolean
  /** Whether an event waits until the queue has room. No frame is read while it waits. */
  isOffering: boolean
}

interface Dialed extends FrameSender.TrackedSocket {
  readonly close: Effect.Effect<void>
}

/** Types of an instance's last event, after which the connection is closed. */
const lastTypes: ReadonlySet<string> = new Set(["instance.stopped", "instance.failed"])

/**
 * Connects, and stays connected until the scope ends.
 *
 * Fails if the first connection cannot be established.
 */
export const make = (
  options: Options
): Effect.Effect<InstanceConnection<UpstreamFailure>, UpstreamFailure, Scope.Scope> =>
  Effect.gen(function* () {
    const { instanceId } = options
    const scope = yield* Effect.scope
    // Created first, and so closed last: the end of the scope must not look like a lost connection.
    const sockets = yield* Scope.fork(scope, ExecutionStrategy.sequential)
    const events = new SpscQueue<Received, UpstreamFailure>(waitingEvents)
    // A slow consumer loses the oldest states first.
    const changes = yield* PubSub.sliding<ConnectionState>(8)
    const connected = yield* Effect.makeLatch(true)
    const delays = yield* Schedule.driver(Retries.backoff)

    let state: ConnectionState = "connected"
    let lastId = options.after
    let isOver = false

    const setState = (next: ConnectionState): Effect.Effect<void> =>
      Effect.suspend(() => {
        if (state === next || state === "closed") return Effect.void
        state = next
        const gate = next === "reconnecting" ? connected.close : connected.open
        return Effect.zipRight(gate, Effect.asVoid(PubSub.publish(changes, next)))
      })

    const end = (exit: Exit.Exit<void, UpstreamFailure>) =>
      Effect.zipRight(
        setState("closed"),
        Effect.sync(() => events.unsafeDone(exit))
      )
    yield* Effect.addFinalizer(() => end(Exit.void))

    const dial = (again: boolean) =>
      Effect.gen(function* () {
        const socketScope = yield* Scope.fork(sockets, ExecutionStrategy.sequential)
        const socket = yield* options.dial(lastId, again).pipe(
          Scope.extend(socketScope),
          Effect.onError(cause => Scope.close(socketScope, Exit.failCause(cause)))
        )
        const dialed: Dialed = { socket, close: Scope.close(socketScope, Exit.void), unacknowledged: new Set() }
        return dialed
      })

    let current = yield* dial(false)

    let warned = false
    const onRejected = (problem: string) =>
      Effect.gen(function* () {
        yield* Metric.increment(rejectedFrames)
        if (warned) return
        warned = true
        yield* Effect.logWarning(
          "The agent platform sent a frame that is not an event; further ones are only counted"
        ).pipe(Effect.annotateLogs({ instanceId, problem }))
      })

    const isRepeated = ({ id }: PlatformEvent.PlatformEvent, progress: Progress): boolean =>
      !progress.any && id !== undefined && id === lastId

    /** Forwards events until the instance's last event or the end of the socket. */
    const forward = (socket: OpenSocket, progress: Progress): Effect.Effect<void, SocketClosed> => {
      const forwardOne = (event: PlatformEvent.PlatformEvent): Effect.Effect<void> => {
        const skips = isRepeated(event, progress)
        progress.any = true
        if (skips) return Effect.void
        progress.isOffering = true
        // Offered and recorded synchronously. Otherwise the next socket might deliver the event again.
        return Effect.map(events.awaitRoom, () => {
          events.unsafeOffer(event)
          progress.isOffering = false
          lastId = event.id ?? lastId
          isOver = lastTypes.has(event.type)
        })
      }
      const next = Effect.flatMap(socket.take, frame =>
        Either.match(PlatformEvent.fromFrame(frame), { onLeft: onRejected, onRight: forwardOne })
      )
      // Effect.forever would yield after each event.
      const all: Effect.Effect<void, SocketClosed> = Effect.flatMap(next, () => (isOver ? Effect.void : all))
      return all
    }

    /** Ends when a socket that is being read has been silent for too long. */
    const untilSilent = (socket: OpenSocket, progress: Progress): Effect.Effect<void> =>
      Effect.gen(function* () {
        for (;;) {
          const before = socket.received()
          yield* Effect.sleep(silence)
          if (progress.isOffering || socket.received() !== before) continue
          yield* socket.ping
          yield* Effect.sleep(silence)
          if (!progress.isOffering && socket.received() === before) return
        }
      })

    /** Runs one socket to its end. Returns the reason, if there is one. */
    const run = (socket: OpenSocket) =>
      Effect.gen(function* () {
        const start = yield* Monotonic.millis
        const progress: Progress = { any: false, isOffering: false }
        const ended = yield* Effect.raceFirst(
          Effect.match(forward(socket, progress), { onFailure: closed => closed, onSuccess: () => undefined }),
          Effect.as(untilSilent(socket, progress), undefined)
        )
        const lasted = (yield* Monotonic.millis) - start
        if (progress.any || lasted >= Duration.toMillis(stable)) yield* delays.reset
        return ended
      })

    const redial: Effect.Effect<typeof current, UpstreamFailure> = Effect.zipRight(
      Effect.orDie(delays.next(undefined)),
      dial(true)
    ).pipe(
      Effect.catchIf(
        refusal => !isFinal(refusal),
        refusal =>
          Effect.zipRight(
            Effect.logDebug("An agent instance cannot be reached yet").pipe(
              Effect.annotateLogs({ instanceId, failure: refusal.message })
            ),
            redial
          )
      )
    )

    const supervise = Effect.gen(function* () {
      for (;;) {
        const ended = yield* run(current.socket)
        yield* Effect.forkIn(current.close, sockets)
        if (isOver) return
        if (ended?.tooLarge) return yield* failure("too_large", ended.message)
        yield* setState("reconnecting")
        // From here on nothing is sent on the lost socket.
        if (current.unacknowledged.size > 0) events.unsafeOffer(new Undelivered([...current.unacknowledged]))
        yield* Effect.logWarning("Lost the connection to an agent instance; reconnecting").pipe(
          Effect.annotateLogs({ instanceId, reason: ended?.message ?? "no data" })
        )
        current = yield* redial
        yield* Metric.increment(reconnects)
        yield* setState("connected")
        yield* Effect.logInfo("Connected to an agent instance again").pipe(Effect.annotateLogs({ instanceId }))
      }
    }).pipe(
      Effect.catchIf(saysGone, () => Effect.void),
      Effect.onExit(exit => (Exit.isInterrupted(exit) ? Effect.void : end(exit)))
    )
    // It outlives the request that connects, whose log annotations do not apply.
    const annotations = HashMap.make(["instanceId", instanceId] as const)
    yield* Effect.forkScoped(Effect.locally(Effect.ignore(supervise), FiberRef.currentLogAnnotations, annotations))

    const whenConnected = <A>(f: (socket: FrameSender.TrackedSocket) => A): Effect.Effect<A, UpstreamFailure> =>
      Effect.suspend(() => {
        if (state === "closed") return failure("connection", "The connection to the instance is closed")
        if (state === "connected" && !current.socket.isClosed()) return Effect.succeed(f(current))
        // The supervisor sees the end of a socket only after the events before it.
        return Effect.zipRight(Effect.zipRight(setState("reconnecting"), connected.await), whenConnected(f))
      })

    const send = yield* FrameSender.make(whenConnected, sockets)

    return {
      send,
      ready: whenConnected(() => {}),
      take: events.takeAll,
      states: Stream.unwrapScoped(
        Effect.map(PubSub.subscribe(changes), later =>
          Stream.concat(
            Stream.sync(() => state),
            Stream.fromQueue(later)
          ).pipe(
            Stream.changes,
            Stream.takeUntil(seen => seen === "closed")
          )
        )
      )
    }
  })
