/**
 * The connection to a running agent instance, which reconnects while the instance exists.
 */
import { Effect, ExecutionStrategy, Exit, FiberRef, HashMap, Metric, Schedule, Scope, type Stream } from "effect"
import * as MetricTags from "../MetricTags.ts"
import { type ConnectionState, ConnectionStates } from "./ConnectionStates.ts"
import { EventReader, largeEvents, rejectedFrames } from "./EventReader.ts"
import * as FrameSender from "./FrameSender.ts"
import type * as PlatformEvent from "./PlatformEvent.ts"
import type { OpenSocket } from "./PlatformSocket.ts"
import * as Retries from "./Resilience/Retries.ts"
import { UpstreamFailure } from "./Resilience/UpstreamFailure.ts"
import { SpscQueue, type Taken } from "./SpscQueue.ts"

export type { ConnectionState } from "./ConnectionStates.ts"

/**
 * Messages that were sent on a lost connection and may or may not have arrived. It follows all events of that
 * connection.
 */
export class Undelivered {
  constructor(readonly turnIds: ReadonlyArray<string>) {}
}

/** What the consumer of a connection takes. */
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

/** How to reach an instance, and where to resume. */
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

/** Registers the metrics with 0. */
export const register = (tags: MetricTags.MetricTags): void =>
  MetricTags.register([reconnects, rejectedFrames, largeEvents], tags)

/**
 * Maximum number of events that wait to be consumed, in addition to frames that wait in the socket. As all of them are
 * consumed at once, an event counts once for each of its {@link eventUnit} characters.
 */
const waitingEvents = 64
const eventUnit = 4096

const weigh = (received: Received): number =>
  received instanceof Undelivered ? 1 : Math.max(1, (received.size ?? 0) / eventUnit)

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

interface Dialed extends FrameSender.TrackedSocket {
  readonly close: Effect.Effect<void>
}

/** Opens a socket whose scope is a part of `sockets`, and ends with `close` at the latest. */
const dial = (opening: ReturnType<Options["dial"]>, sockets: Scope.Scope): Effect.Effect<Dialed, UpstreamFailure> =>
  Effect.gen(function* () {
    const socketScope = yield* Scope.fork(sockets, ExecutionStrategy.sequential)
    const socket = yield* opening.pipe(
      Scope.extend(socketScope),
      Effect.onError(cause => Scope.close(socketScope, Exit.failCause(cause)))
    )
    return { socket, close: Scope.close(socketScope, Exit.void), unacknowledged: new Set() }
  })

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
    const events = new SpscQueue<Received, UpstreamFailure>(waitingEvents, weigh)
    const states = yield* ConnectionStates.make
    const reader = new EventReader(instanceId, events, options.after)
    const delays = yield* Schedule.driver(Retries.backoff)

    const end = (exit: Exit.Exit<void, UpstreamFailure>) =>
      Effect.zipRight(
        states.set("closed"),
        Effect.sync(() => events.unsafeDone(exit))
      )
    yield* Effect.addFinalizer(() => end(Exit.void))

    let current = yield* dial(options.dial(options.after, false), sockets)

    /** Opens sockets until one is accepted or refused permanently. */
    const redial: Effect.Effect<Dialed, UpstreamFailure> = Effect.orDie(delays.next(undefined)).pipe(
      Effect.zipRight(Effect.suspend(() => dial(options.dial(reader.lastEventId, true), sockets))),
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
        const { closed, isStable } = yield* reader.read(current.socket)
        if (isStable) yield* delays.reset
        yield* Effect.forkIn(current.close, sockets)
        if (reader.hasLastEvent) return
        if (closed?.tooLarge) return yield* failure("too_large", closed.message)
        yield* states.set("reconnecting")
        // From here on nothing is sent on the lost socket.
        if (current.unacknowledged.size > 0) events.unsafeOffer(new Undelivered([...current.unacknowledged]))
        yield* Effect.logWarning("Lost the connection to an agent instance; reconnecting").pipe(
          Effect.annotateLogs({ instanceId, reason: closed?.message ?? "no data" })
        )
        current = yield* redial
        yield* Metric.increment(reconnects)
        yield* states.set("connected")
        yield* Effect.logInfo("Connected to an agent instance again").pipe(Effect.annotateLogs({ instanceId }))
      }
    }).pipe(
      Effect.catchIf(saysGone, () => Effect.void),
      Effect.onExit(exit => (Exit.isInterrupted(exit) ? Effect.void : end(exit)))
    )
    // It outlives the request that connects, whose log annotations do not apply.
    const annotations = HashMap.make(["instanceId", instanceId] as const)
    yield* Effect.forkScoped(Effect.locally(Effect.ignore(supervise), FiberRef.currentLogAnnotations, annotations))

    const whenConnected: FrameSender.WhenConnected = f =>
      Effect.suspend(() => {
        if (states.current === "closed") return failure("connection", "The connection to the instance is closed")
        if (states.current === "connected" && !current.socket.isClosed()) return Effect.succeed(f(current))
        // The supervisor sees the end of a socket only after the events before it.
        return Effect.zipRight(Effect.zipRight(states.set("reconnecting"), states.settled), whenConnected(f))
      })

    return {
      send: yield* FrameSender.make(whenConnected, sockets),
      ready: whenConnected(() => {}),
      take: events.takeAll,
      states: states.all
    }
  })
