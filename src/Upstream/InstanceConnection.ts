/**
 * The connection to a running agent instance, which reconnects while the instance exists.
 */
import {
  Duration,
  Effect,
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
import * as MetricTags from "../base/MetricTags.ts"
import * as Monotonic from "../base/Monotonic.ts"
import { EventReader, largeEvents, rejectedFrames } from "./EventReader.ts"
import * as PlatformEvent from "./PlatformEvent.ts"
import type { OpenSocket } from "./PlatformSocket.ts"
import * as Retries from "./Resilience/Retries.ts"
import { UpstreamFailure } from "./Resilience/UpstreamFailure.ts"
import { SpscQueue, type Taken } from "./SpscQueue.ts"

/** How long a frame waits, and whether it is still wanted. */
export interface SendOptions {
  /** How long to wait for earlier frames and for a connection; 15 s if absent. */
  readonly timeout?: Duration.DurationInput | undefined
  /** Called synchronously right before the frame is sent; if it returns `false`, the frame is dropped. */
  readonly claim?: (() => boolean) | undefined
}

/** Sends a frame. After a failure the frame was not sent. */
export type Send<E> = (frame: PlatformEvent.PlatformFrame, options?: SendOptions) => Effect.Effect<void, E>

/** `closed` is final: the instance has ended, the platform refuses the connection, or the scope has ended. */
export type ConnectionState = "connected" | "reconnecting" | "closed"

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
  readonly send: Send<E>
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

/** A socket, and the turns whose messages were sent on it and have not been read by the platform. */
interface TrackedSocket {
  readonly socket: OpenSocket
  readonly unacknowledged: Set<string>
}

/** Waits until there is an open socket, and runs `f` synchronously with it. */
type WhenConnected = <A>(f: (socket: TrackedSocket) => A) => Effect.Effect<A, UpstreamFailure>

const defaultTimeout = Duration.seconds(15)

/** Writes a frame to the network. */
const write = ({ socket, unacknowledged }: TrackedSocket, frame: PlatformEvent.PlatformFrame, scope: Scope.Scope) => {
  const written = socket.send(PlatformEvent.toFrame(frame))
  if (frame.type !== "message") return Effect.ignore(written)
  const read = Effect.map(socket.acknowledged, () => unacknowledged.delete(frame.turnId))
  // After a failure the message stays unacknowledged.
  return Effect.ignore(Effect.zipRight(written, Effect.forkIn(Effect.ignore(read), scope)))
}

/** Sends frames one after the other. `scope` is the scope of the sockets. */
const makeSend = (whenConnected: WhenConnected, scope: Scope.Scope): Effect.Effect<Send<UpstreamFailure>> =>
  Effect.map(Effect.makeSemaphore(1), semaphore => (frame, { timeout = defaultTimeout, claim } = {}) => {
    let socket: TrackedSocket | undefined
    let isDecided = false
    const decide = (current: TrackedSocket): void => {
      isDecided = true
      if (claim?.() === false) return
      socket = current
      if (frame.type === "message") current.unacknowledged.add(frame.turnId)
    }
    const revoke = (): void => {
      isDecided = false
      if (frame.type === "message") socket?.unacknowledged.delete(frame.turnId)
    }
    const release = semaphore.release(1)
    // Interruptible only while it waits.
    const inOrder = Effect.gen(function* () {
      yield* Effect.interruptible(semaphore.take(1))
      yield* Effect.onError(Effect.interruptible(whenConnected(decide)), () =>
        Effect.zipRight(Effect.sync(revoke), release)
      )
      // If the network is blocked, the frames behind this one wait, and the caller does not.
      yield* socket === undefined
        ? release
        : Effect.forkIn(Effect.ensuring(Effect.interruptible(write(socket, frame, scope)), release), scope)
    })
    return Effect.flatMap(Effect.timeoutOption(Effect.uninterruptible(inOrder), timeout), () => {
      if (isDecided) return Effect.void
      return new UpstreamFailure({
        operation: "connect",
        reason: "timeout",
        message: `No connection to the instance within ${Monotonic.words(timeout)}`
      })
    })
  })

/** Number of changes that wait for a slow consumer. It misses the oldest ones first. */
const waitingChanges = 8

/** The state of a connection, which starts as `connected`, and its changes. */
class ConnectionStates {
  private state: ConnectionState = "connected"
  private readonly isSettled = Effect.unsafeMakeLatch(true)

  private constructor(private readonly changes: PubSub.PubSub<ConnectionState>) {}

  static readonly make: Effect.Effect<ConnectionStates> = Effect.map(
    PubSub.sliding<ConnectionState>(waitingChanges),
    changes => new ConnectionStates(changes)
  )

  get current(): ConnectionState {
    return this.state
  }

  /** Changes the state. Has no effect after `closed`. */
  set(next: ConnectionState): Effect.Effect<void> {
    return Effect.suspend(() => {
      if (this.state === next || this.state === "closed") return Effect.void
      this.state = next
      const gate = next === "reconnecting" ? this.isSettled.close : this.isSettled.open
      return Effect.zipRight(gate, Effect.asVoid(PubSub.publish(this.changes, next)))
    })
  }

  /** Waits while it is `reconnecting`. */
  get settled(): Effect.Effect<void> {
    return this.isSettled.await
  }

  /** The current state and its changes until `closed`. A slow consumer may miss some, but never the last one. */
  get all(): Stream.Stream<ConnectionState> {
    return Stream.unwrapScoped(
      Effect.map(PubSub.subscribe(this.changes), later =>
        Stream.concat(
          Stream.sync(() => this.state),
          Stream.fromQueue(later)
        ).pipe(
          Stream.changes,
          Stream.takeUntil(seen => seen === "closed")
        )
      )
    )
  }
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

interface Dialed extends TrackedSocket {
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

    const whenConnected: WhenConnected = f =>
      Effect.suspend(() => {
        if (states.current === "closed") return failure("connection", "The connection to the instance is closed")
        if (states.current === "connected" && !current.socket.isClosed()) return Effect.succeed(f(current))
        // The supervisor sees the end of a socket only after the events before it.
        return Effect.zipRight(Effect.zipRight(states.set("reconnecting"), states.settled), whenConnected(f))
      })

    return {
      send: yield* makeSend(whenConnected, sockets),
      ready: whenConnected(() => {}),
      take: events.takeAll,
      states: states.all
    }
  })
