/**
 * Reads the events of one instance from consecutive sockets.
 */
import { Duration, Effect, Either, Metric } from "effect"
import * as Monotonic from "../base/Monotonic.ts"
import * as PlatformEvent from "./PlatformEvent.ts"
import type { OpenSocket, SocketClosed } from "./PlatformSocket.ts"
import type { SpscQueue } from "./SpscQueue.ts"

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
export interface SocketEnd {
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
export class EventReader {
  private isOver = false
  private readonly warned = new Set<string>()

  constructor(
    /** For logs. */
    private readonly instanceId: string,
    private readonly events: Pick<SpscQueue<PlatformEvent.PlatformEvent, never>, "awaitRoom" | "unsafeOffer">,
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
    const next = Effect.flatMap(socket.take, frame =>
      typeof frame === "string" ? Either.match(PlatformEvent.fromFrame(frame), { onLeft, onRight }) : onLeft(frame)
    )
    // Effect.forever would yield after each event.
    const all: Effect.Effect<void, SocketClosed> = Effect.flatMap(next, () => (this.isOver ? Effect.void : all))
    return all
  }

  private offer(event: PlatformEvent.PlatformEvent, progress: Progress): Effect.Effect<void> {
    // A platform may resume with the event that it was given.
    const isRepeated = !progress.any && event.id !== undefined && event.id === this.lastId
    progress.any = true
    return isRepeated ? Effect.void : this.pass(event, progress)
  }

  private pass(event: PlatformEvent.PlatformEvent, progress: Progress): Effect.Effect<void> {
    progress.isOffering = true
    // Offered and recorded synchronously. Otherwise the next socket might deliver the event again.
    return Effect.map(this.events.awaitRoom, () => {
      this.events.unsafeOffer(event)
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
