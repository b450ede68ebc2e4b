/**
 * The connection to a running agent instance: its events are read from consecutive sockets, and it reconnects while the
 * instance exists.
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
  Schedule,
  Scope,
  Stream,
  SubscriptionRef
} from "effect"
import * as Direct from "../../base/Direct.ts"
import * as MetricTags from "../../base/Observability/MetricTags.ts"
import * as Monotonic from "../../base/Time/Monotonic.ts"
import {
  AgentPlatformConnectionError,
  type ConnectionState,
  type InstanceConnection,
  type Send,
  Undelivered
} from "../AgentPlatform.ts"
import * as PlatformEvent from "../PlatformEvent.ts"
import * as Retries from "../Resilience/Retries.ts"
import { UpstreamFailure } from "../Resilience/UpstreamFailure.ts"
import * as Resilience from "../Resilience.ts"
import { EventQueue } from "./EventQueue.ts"
import type { OpenSocket, SocketClosed } from "./PlatformSocket.ts"

/** The failure of a call as the error of the port. */
export const toError = (
  { message, operation, reason, statusCode }: UpstreamFailure,
  isInDoubt?: boolean
): AgentPlatformConnectionError =>
  new AgentPlatformConnectionError({
    operation,
    reason,
    statusCode: reason === "circuit_open" ? 503 : statusCode,
    ...(isInDoubt === undefined ? {} : { isInDoubt }),
    message
  })

/** A connection whose failures are the errors of the port. */
export const ofPort = ({
  ready,
  send,
  states,
  take
}: InstanceConnection<UpstreamFailure>): InstanceConnection<AgentPlatformConnectionError> => ({
  send: (frame, options) => Effect.mapError(send(frame, options), failure => toError(failure)),
  ready: Effect.mapError(ready, failure => toError(failure)),
  take: Direct.catchAll(take, failure => Exit.fail(toError(failure))),
  states
})

/** How to reach an instance, and where to resume. */
export interface Options {
  /** Opens a socket that resumes after an event. `again` is `false` for the first socket. */
  readonly dial: (after: string | undefined, again: boolean) => Effect.Effect<OpenSocket, UpstreamFailure, Scope.Scope>
  /** The id of the event after which the first socket resumes. */
  readonly after: string | undefined
  /** For logs. */
  readonly instanceId: string
}

/** Requests to the agent platform, or to an agent. */
export const durations = Resilience.durations(
  "agent_platform_request_duration_ms",
  "Requests to the agent platform, in milliseconds"
)

/** Counts frames that are not events. */
export const rejectedFrames = Metric.counter("agent_platform_frames_rejected_total", {
  description: "Frames from agent instances that are not events",
  incremental: true
})

/** Counts events that were left out because they exceed a limit. */
export const largeEvents = Metric.counter("agent_platform_events_too_large_total", {
  description: "Events of agent instances that were left out because they exceed a limit",
  incremental: true
})

/** A connection without data is pinged after this time, and closed after the same time again. */
const silence = Duration.seconds(20)

/** A socket that was read for this long or delivered an event was stable. */
const stable = Duration.seconds(10)

/** Types of an instance's last event. */
const lastTypes: ReadonlySet<string> = new Set(["instance.stopped", "instance.failed"])

/** How far one socket has been read. */
interface Progress {
  /** Whether it has delivered an event. */
  any: boolean
  /** Whether an event waits until the queue has room. No frame is read while it waits. */
  isOffering: boolean
}

/** The end of one socket. */
interface SocketEnd {
  /** Why it has ended; `undefined` if it was silent, or delivered the last event of the instance. */
  readonly closed: SocketClosed | undefined
  /** Whether the socket worked, so that the backoff starts again. */
  readonly isStable: boolean
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

/** Passes events to a queue, each once. Frames that are not events are counted, and the first one is logged. */
class EventReader {
  private isOver = false
  private readonly warned = new Set<string>()

  constructor(
    /** For logs. */
    private readonly instanceId: string,
    private readonly events: EventQueue,
    /** The id of the event after which the first socket resumes. */
    private lastId: string | undefined
  ) {}

  /** The id of the newest event in the queue, after which the next socket resumes. */
  get lastEventId(): string | undefined {
    return this.lastId
  }

  /** Whether the newest event in the queue is the last one of the instance. */
  get hasLastEvent(): boolean {
    return this.isOver
  }

  /** Reads a socket until the instance's last event, the end of the socket, or a silence. */
  read(socket: OpenSocket): Effect.Effect<SocketEnd> {
    return Effect.gen(this, function* () {
      const start = yield* Monotonic.millis
      const progress: Progress = { any: false, isOffering: false }
      const closed = yield* Effect.raceFirst(
        Effect.match(this.forward(socket, progress), { onFailure: closed => closed, onSuccess: () => undefined }),
        Effect.as(untilSilent(socket, progress), undefined)
      )
      const lasted = (yield* Monotonic.millis) - start
      return { closed, isStable: progress.any || lasted >= Duration.toMillis(stable) }
    })
  }

  private forward(socket: OpenSocket, progress: Progress): Effect.Effect<void, SocketClosed> {
    const onLeft = (problem: string | PlatformEvent.OversizedFrame) =>
      typeof problem === "string" ? this.reject(problem) : this.leaveOut(problem, progress)
    const onRight = (event: PlatformEvent.PlatformEvent) => this.offer(event, progress)
    const next = Direct.flatMap(socket.take, frame =>
      typeof frame === "string" ? Either.match(PlatformEvent.fromFrame(frame), { onLeft, onRight }) : onLeft(frame)
    )
    return Direct.repeatWhile(Direct.map(next, () => !this.isOver))
  }

  private offer(event: PlatformEvent.PlatformEvent, progress: Progress): Effect.Effect<void> {
    // A platform may resume with the event that it was given.
    const isRepeated = !progress.any && event.id !== undefined && event.id === this.lastId
    progress.any = true
    return isRepeated ? Exit.void : this.pass(event, progress)
  }

  private pass(event: PlatformEvent.PlatformEvent, progress: Progress): Effect.Effect<void> {
    progress.isOffering = true
    // Offered and recorded synchronously. Otherwise the next socket might deliver the event again.
    return Direct.map(this.events.awaitRoom, () => {
      this.events.offer(event)
      progress.isOffering = false
      this.lastId = event.id ?? this.lastId
      this.isOver = lastTypes.has(event.type)
    })
  }

  private leaveOut(frame: PlatformEvent.OversizedFrame, progress: Progress): Effect.Effect<void> {
    progress.any = true
    return Metric.increment(largeEvents).pipe(
      Effect.zipRight(this.warnOnce("The agent platform sent an event that is too large", frame.problem)),
      Effect.zipRight(this.pass(frame.event, progress))
    )
  }

  private reject(problem: string): Effect.Effect<void> {
    return Effect.zipRight(
      Metric.increment(rejectedFrames),
      this.warnOnce("The agent platform sent a frame that is not an event", problem)
    )
  }

  /** Logs a warning, once for each message. */
  private warnOnce(message: string, problem: string): Effect.Effect<void> {
    return Effect.suspend(() => {
      if (this.warned.has(message)) return Effect.void
      this.warned.add(message)
      const annotations = { instanceId: this.instanceId, problem }
      return Effect.annotateLogs(Effect.logWarning(`${message}; further ones are only counted`), annotations)
    })
  }
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

const reconnects = Metric.counter("agent_platform_reconnects_total", {
  description: "Connections to agent instances that were re-established",
  incremental: true
})

/** Registers the metrics with 0. */
export const register = (tags: MetricTags.MetricTags): void =>
  MetricTags.register([reconnects, rejectedFrames, largeEvents], tags)

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

/** The sockets of one instance, one after another, and what is read from them. */
class Sockets {
  private readonly reader: EventReader

  constructor(
    private readonly options: Options,
    private readonly events: EventQueue,
    private readonly states: SubscriptionRef.SubscriptionRef<ConnectionState>,
    private readonly delays: Effect.Effect.Success<
      ReturnType<typeof Schedule.driver<Duration.Duration, unknown, never>>
    >,
    /** The scope of all sockets. */
    readonly scope: Scope.Scope,
    private current: Dialed
  ) {
    this.reader = new EventReader(options.instanceId, events, options.after)
  }

  /** Changes the state. Has no effect after `closed`. */
  private become(next: ConnectionState): Effect.Effect<void> {
    return SubscriptionRef.update(this.states, state => (state === "closed" ? state : next))
  }

  end(exit: Exit.Exit<void, UpstreamFailure>): Effect.Effect<void> {
    return Effect.zipRight(
      this.become("closed"),
      Effect.sync(() => this.events.end(exit))
    )
  }

  /** Opens sockets until one is accepted or refused permanently. */
  private get redial(): Effect.Effect<Dialed, UpstreamFailure> {
    const { instanceId, dial: open } = this.options
    return Effect.orDie(this.delays.next(undefined)).pipe(
      Effect.zipRight(Effect.suspend(() => dial(open(this.reader.lastEventId, true), this.scope))),
      Effect.catchIf(
        refusal => !isFinal(refusal),
        refusal =>
          Effect.zipRight(
            Effect.logDebug("An agent instance cannot be reached yet").pipe(
              Effect.annotateLogs({ instanceId, failure: refusal.message })
            ),
            this.redial
          )
      )
    )
  }

  /** Reads sockets until the instance has ended or refuses the connection. */
  get supervise(): Effect.Effect<void, UpstreamFailure> {
    return Effect.gen(this, function* () {
      const { instanceId } = this.options
      for (;;) {
        const { current } = this
        const { closed, isStable } = yield* this.reader.read(current.socket)
        if (isStable) yield* this.delays.reset
        yield* Effect.forkIn(current.close, this.scope)
        if (this.reader.hasLastEvent) return
        if (closed?.tooLarge) return yield* failure("too_large", closed.message)
        yield* this.become("reconnecting")
        // From here on nothing is sent on the lost socket.
        if (current.unacknowledged.size > 0) this.events.offer(new Undelivered([...current.unacknowledged]))
        yield* Effect.logWarning("Lost the connection to an agent instance; reconnecting").pipe(
          Effect.annotateLogs({ instanceId, reason: closed?.message ?? "no data" })
        )
        this.current = yield* this.redial
        yield* Metric.increment(reconnects)
        yield* this.become("connected")
        yield* Effect.logInfo("Connected to an agent instance again").pipe(Effect.annotateLogs({ instanceId }))
      }
    }).pipe(
      Effect.catchIf(saysGone, () => Effect.void),
      Effect.onExit(exit => (Exit.isInterrupted(exit) ? Effect.void : this.end(exit)))
    )
  }

  readonly whenConnected: WhenConnected = f =>
    Effect.flatMap(SubscriptionRef.get(this.states), state => {
      if (state === "closed") return failure("connection", "The connection to the instance is closed")
      if (state === "connected" && !this.current.socket.isClosed()) return Effect.succeed(f(this.current))
      const settled = Stream.runDrain(Stream.takeUntil(this.states.changes, next => next !== "reconnecting"))
      // The supervisor sees the end of a socket only after the events before it.
      return Effect.zipRight(Effect.zipRight(this.become("reconnecting"), settled), this.whenConnected(f))
    })
}

/**
 * Connects, and stays connected until the scope ends.
 *
 * Fails if the first connection cannot be established.
 */
export const make = (
  options: Options
): Effect.Effect<InstanceConnection<UpstreamFailure>, UpstreamFailure, Scope.Scope> =>
  Effect.gen(function* () {
    // Created first, and so closed last: the end of the scope must not look like a lost connection.
    const scope = yield* Scope.fork(yield* Effect.scope, ExecutionStrategy.sequential)
    const events = new EventQueue()
    const states = yield* SubscriptionRef.make<ConnectionState>("connected")
    const delays = yield* Schedule.driver(Retries.backoff)
    const first = yield* dial(options.dial(options.after, false), scope)
    const sockets = new Sockets(options, events, states, delays, scope, first)
    yield* Effect.addFinalizer(() => sockets.end(Exit.void))
    // It outlives the request that connects, whose log annotations do not apply.
    const annotations = HashMap.make(["instanceId", options.instanceId] as const)
    yield* Effect.forkScoped(
      Effect.locally(Effect.ignore(sockets.supervise), FiberRef.currentLogAnnotations, annotations)
    )
    return {
      send: yield* makeSend(sockets.whenConnected, scope),
      ready: sockets.whenConnected(() => {}),
      take: events.take,
      states: Stream.takeUntil(Stream.changes(states.changes), state => state === "closed")
    }
  })
