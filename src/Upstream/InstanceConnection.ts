/**
 * The connection to a running agent instance: it outlives the sockets that carry it, as long as the instance lives.
 */
import {
  Chunk,
  Duration,
  Effect,
  Either,
  ExecutionStrategy,
  Exit,
  FiberRef,
  HashMap,
  Metric,
  Option,
  PubSub,
  Schedule,
  Scope,
  Stream
} from "effect"
import * as Monotonic from "../Monotonic.ts"
import * as PlatformEvent from "./PlatformEvent.ts"
import type { OpenSocket, SocketClosed } from "./PlatformSocket.ts"
import * as RetryPolicy from "./RetryPolicy.ts"
import * as Sending from "./Sending.ts"
import { SpscQueue, type Taken } from "./SpscQueue.ts"
import { UpstreamFailure } from "./UpstreamFailure.ts"
import * as UpstreamMetrics from "./UpstreamMetrics.ts"

/** `closed` is the end: the instance is gone, the platform refuses us, or the scope has ended. */
export type ConnectionState = "connected" | "reconnecting" | "closed"

/**
 * Messages that were handed to a connection that has broken since, and of which nobody knows whether they arrived. It
 * comes behind all that the connection has told.
 */
export class Undelivered {
  constructor(readonly turnIds: ReadonlyArray<string>) {}
}

/** What comes of a connection. */
export type Heard = PlatformEvent.PlatformEvent | Undelivered

const isEvent = (heard: Heard): heard is PlatformEvent.PlatformEvent => !(heard instanceof Undelivered)

/** A connection to one instance. */
export interface InstanceConnection<E> {
  /**
   * Hands a frame over to the network, once and in the order of calls, waiting while the connection is being
   * re-established.
   *
   * After a failure it has certainly not been sent. After success it may still be lost with the connection; what is
   * lost of messages is told as {@link Undelivered}.
   */
  readonly send: Sending.Send<E>
  /** Waits until the connection stands. It fails once there is no further one. */
  readonly ready: Effect.Effect<void, E>
  /**
   * What the instance tells, in order, for one consumer. It ends when the instance is gone and fails when the platform
   * refuses the connection for good. A consumer that does not take stops the reading from the network.
   */
  readonly events: Stream.Stream<PlatformEvent.PlatformEvent, E>
  /** The same and what got lost, without a stream, which costs more than many an event. */
  readonly take: Effect.Effect<Taken<Heard>, E>
  readonly state: Effect.Effect<ConnectionState>
  /** The state at present and its changes; a slow watcher may miss some between, never the last one. */
  readonly states: Stream.Stream<ConnectionState>
}

/** How a connection is made and watched. */
export interface Options {
  /** Opens a socket that resumes after an event, until the scope ends. `again` tells a first try from a later one. */
  readonly dial: (after: string | undefined, again: boolean) => Effect.Effect<OpenSocket, UpstreamFailure, Scope.Scope>
  /** The event to resume after from the beginning. */
  readonly after: string | undefined
  /** For logs. */
  readonly instanceId: string
}

/** Events read and not yet consumed, beside those that wait in the socket. */
const waitingEvents = 64

/** A silent connection is asked for a sign of life after this time, and given up after it once more. */
const silence = Duration.seconds(20)

/** A connection that has stood this long, or brought an event, was a good one: the waits begin anew. */
const stable = Duration.seconds(10)

const operation = "connect"

const failure = (reason: UpstreamFailure["reason"], message: string): UpstreamFailure =>
  new UpstreamFailure({ operation, reason, message })

/** Whether a refusal says that the instance is no more. */
const saysGone = ({ statusCode }: UpstreamFailure): boolean => statusCode === 404 || statusCode === 410

/** Whether dialling again would meet the same refusal. */
const isFinal = (refusal: UpstreamFailure): boolean =>
  refusal.reason === "status" &&
  refusal.statusCode !== undefined &&
  refusal.statusCode >= 400 &&
  refusal.statusCode < 500 &&
  !RetryPolicy.isTransient(refusal)

/** How far the events of one socket are. */
interface Progress {
  /** Whether one has come. */
  any: boolean
  /** Whether one waits until the consumer has room for it, and none is read meanwhile. */
  isOffering: boolean
}

/** A socket of the connection, with how to close it. */
interface Dialed extends Sending.Carrier {
  readonly close: Effect.Effect<void>
}

/** Types after which an instance has nothing more to say: its connection is closed, whether the platform does or not. */
const lastTypes: ReadonlySet<string> = new Set(["instance.stopped", "instance.failed"])

/**
 * Connects, and stays connected until the scope ends.
 *
 * The first connection must come about for this to succeed.
 */
export const make = (
  options: Options
): Effect.Effect<InstanceConnection<UpstreamFailure>, UpstreamFailure, Scope.Scope> =>
  Effect.gen(function* () {
    const { instanceId } = options
    const scope = yield* Effect.scope
    // Made first and so closed last: nobody is to take the end of the sockets at the scope's end for a loss.
    const sockets = yield* Scope.fork(scope, ExecutionStrategy.sequential)
    const events = new SpscQueue<Heard, UpstreamFailure>(waitingEvents)
    // A watcher who falls behind loses the oldest states first.
    const changes = yield* PubSub.sliding<ConnectionState>(8)
    const connected = yield* Effect.makeLatch(true)
    const waits = yield* Schedule.driver(RetryPolicy.backoff)

    let state: ConnectionState = "connected"
    let lastId = options.after
    let isOver = false

    const become = (next: ConnectionState): Effect.Effect<void> =>
      Effect.suspend(() => {
        if (state === next || state === "closed") return Effect.void
        state = next
        const gate = next === "reconnecting" ? connected.close : connected.open
        return Effect.zipRight(gate, Effect.asVoid(PubSub.publish(changes, next)))
      })

    const end = (exit: Exit.Exit<void, UpstreamFailure>) =>
      Effect.zipRight(
        become("closed"),
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
        const carrier: Dialed = { socket, close: Scope.close(socketScope, Exit.void), unread: new Set() }
        return carrier
      })

    let current = yield* dial(false)

    let warned = false
    const onRejected = (problem: string) =>
      Effect.gen(function* () {
        yield* Metric.increment(UpstreamMetrics.rejectedFrames)
        if (warned) return
        warned = true
        yield* Effect.logWarning(
          "The agent platform sent a frame that is no event; further ones are only counted"
        ).pipe(Effect.annotateLogs({ instanceId, problem }))
      })

    const isRepeated = ({ id }: PlatformEvent.PlatformEvent, progress: Progress): boolean =>
      !progress.any && id !== undefined && id === lastId

    /** Carries events on until the instance has said its last, or the socket ends. */
    const carry = (socket: OpenSocket, progress: Progress): Effect.Effect<void, SocketClosed> => {
      const pass = (event: PlatformEvent.PlatformEvent): Effect.Effect<void> => {
        const skips = isRepeated(event, progress)
        progress.any = true
        if (skips) return Effect.void
        progress.isOffering = true
        // Given and noted in one step: an event that is given and not noted would come again on the next socket.
        return Effect.map(events.awaitRoom, () => {
          events.unsafeOffer(event)
          progress.isOffering = false
          lastId = event.id ?? lastId
          isOver = lastTypes.has(event.type)
        })
      }
      const one = Effect.flatMap(socket.take, frame =>
        Either.match(PlatformEvent.fromFrame(frame), { onLeft: onRejected, onRight: pass })
      )
      // Unlike Effect.forever it yields only when it has run for long: it waits for most events anyway.
      const all: Effect.Effect<void, SocketClosed> = Effect.flatMap(one, () => (isOver ? Effect.void : all))
      return all
    }

    /** Ends when a socket has been silent for too long, unless it is not being read. */
    const watch = (socket: OpenSocket, progress: Progress): Effect.Effect<void> =>
      Effect.gen(function* () {
        for (;;) {
          const before = socket.heard()
          yield* Effect.sleep(silence)
          if (progress.isOffering || socket.heard() !== before) continue
          yield* socket.ping
          yield* Effect.sleep(silence)
          if (!progress.isOffering && socket.heard() === before) return
        }
      })

    /** Runs one socket to its end; tells why it ended, where it said so. */
    const serve = (socket: OpenSocket) =>
      Effect.gen(function* () {
        const start = yield* Monotonic.millis
        const progress: Progress = { any: false, isOffering: false }
        const ended = yield* Effect.raceFirst(
          Effect.match(carry(socket, progress), { onFailure: closed => closed, onSuccess: () => undefined }),
          Effect.as(watch(socket, progress), undefined)
        )
        const stood = (yield* Monotonic.millis) - start
        if (progress.any || stood >= Duration.toMillis(stable)) yield* waits.reset
        return ended
      })

    const redial: Effect.Effect<typeof current, UpstreamFailure> = Effect.zipRight(
      Effect.orDie(waits.next(undefined)),
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
        const ended = yield* serve(current.socket)
        yield* Effect.forkIn(current.close, sockets)
        if (isOver) return
        if (ended?.tooLarge) return yield* failure("too_large", ended.message)
        yield* become("reconnecting")
        // From here on nothing is handed to the lost one.
        if (current.unread.size > 0) events.unsafeOffer(new Undelivered([...current.unread]))
        yield* Effect.logWarning("Lost the connection to an agent instance; reconnecting").pipe(
          Effect.annotateLogs({ instanceId, reason: ended?.message ?? "no sign of life" })
        )
        current = yield* redial
        yield* Metric.increment(UpstreamMetrics.reconnects)
        yield* become("connected")
        yield* Effect.logInfo("Connected to an agent instance again").pipe(Effect.annotateLogs({ instanceId }))
      }
    }).pipe(
      Effect.catchIf(saysGone, () => Effect.void),
      Effect.onExit(exit => (Exit.isInterrupted(exit) ? Effect.void : end(exit)))
    )
    // It outlives the request that connects, whose lines say whose request that is.
    const annotations = HashMap.make(["instanceId", instanceId] as const)
    yield* Effect.forkScoped(Effect.locally(Effect.ignore(supervise), FiberRef.currentLogAnnotations, annotations))

    /** Does something with the socket that stands, once there is one, in the very step that finds it standing. */
    const onceStanding = <A>(f: (carrier: Sending.Carrier) => A): Effect.Effect<A, UpstreamFailure> =>
      Effect.suspend(() => {
        if (state === "closed") return failure("connection", "The connection to the instance is closed")
        if (state === "connected" && !current.socket.isClosed()) return Effect.succeed(f(current))
        // The supervisor learns of an end only once it has taken what came before it.
        return Effect.zipRight(Effect.zipRight(become("reconnecting"), connected.await), onceStanding(f))
      })

    const send = yield* Sending.make(onceStanding, sockets)

    return {
      send,
      ready: onceStanding(() => {}),
      events: Stream.repeatEffectChunkOption(
        Effect.matchEffect(events.takeAll, {
          onFailure: error => Effect.fail(Option.some(error)),
          onSuccess: ([values, isOver]) =>
            isOver ? Effect.fail(Option.none()) : Effect.succeed(Chunk.unsafeFromArray(values.filter(isEvent)))
        })
      ),
      take: events.takeAll,
      state: Effect.sync(() => state),
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
