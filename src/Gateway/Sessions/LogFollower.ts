import { Cause, type Context, Effect, Option } from "effect"
import type { StoreUnavailable } from "../../Kv/Store.ts"
import type { History, SessionEvents, SessionUnreadable } from "../SessionEvents.ts"
import type { Subscriber } from "../Sessions.ts"
import { toFrames } from "./Journal.ts"
import type { SessionRecords } from "./SessionRecords.ts"
import { Subscribers } from "./Subscribers.ts"

/** Maximum number of events in one read. */
const pageEvents = 256

/** The delay before a session that could not be read is read again. */
const retryPause = "500 millis"

/** What all followers share. */
export interface Log {
  readonly events: Pick<Context.Tag.Service<SessionEvents>, "read">
  readonly records: Pick<SessionRecords, "find">
  /** Limits the sessions that are read concurrently. */
  readonly reading: Effect.Semaphore
  /** Runs work in the background. */
  readonly run: (work: Effect.Effect<void>) => void
}

/** The session that is followed. */
export interface FollowedSession {
  /** `<tenant>/<id>`. */
  readonly key: string
  readonly tenant: string
  readonly id: string
  /** The history at the time of the first subscription. */
  readonly history: History
}

const logDefect = (session: string, message: string, defect: unknown): Effect.Effect<void> =>
  Effect.annotateLogs(Effect.logError(message, Cause.die(defect)), { session })

/**
 * Reads the new events of one session from the log, and publishes them to its subscribers on this node. It ends with the
 * last of them, or if the session was deleted or its history was lost.
 */
export class LogFollower {
  private published: number
  private isReading = false
  private isWoken = false
  private readonly subscribers = new Subscribers(defect =>
    this.log.run(logDefect(this.session.key, "A subscriber of a session failed", defect))
  )

  constructor(
    readonly session: FollowedSession,
    private readonly log: Log,
    /** Called when it has ended, before subscribers are notified. It may be called again. */
    private readonly onEnd: () => void
  ) {
    this.published = session.history.headSeq
  }

  /** The newest `seq` that was passed to subscribers. */
  get publishedSeq(): number {
    return this.published
  }

  add(subscriber: Subscriber): void {
    this.subscribers.add(subscriber)
  }

  delete(subscriber: Subscriber): void {
    this.subscribers.delete(subscriber)
    if (this.subscribers.size === 0) this.onEnd()
  }

  /** Reads in the background, because there may be new events. */
  wake(): void {
    this.isWoken = true
    if (this.isReading) return
    this.isReading = true
    this.log.run(this.readWhileWoken())
  }

  private readWhileWoken(): Effect.Effect<void> {
    return Effect.suspend(() => {
      this.isWoken = false
      return this.read()
    }).pipe(
      this.log.reading.withPermits(1),
      Effect.catchAll(() => {
        this.isWoken = true
        return Effect.sleep(retryPause)
      }),
      Effect.zipRight(
        Effect.suspend(() => {
          if (this.isWoken && this.subscribers.size > 0) return this.readWhileWoken()
          this.isReading = false
          return Effect.void
        })
      ),
      // Subscribers start again with a new follower.
      Effect.catchAllDefect(defect => {
        this.end(subscriber => subscriber.onLost())
        return logDefect(this.session.key, "The events of a session of another node cannot be read", defect)
      })
    )
  }

  /** Reads and publishes the next page. */
  private read(): Effect.Effect<void, SessionUnreadable | StoreUnavailable> {
    const { history, key } = this.session
    return Effect.flatMap(this.log.events.read(key, this.published, pageEvents), found => {
      if (Option.isNone(found)) return this.endIfGone(true)
      const { epoch, headSeq } = found.value.history
      // Events that were read no longer exist, for example after a fail-over of the database.
      const isCut = headSeq < this.published
      if (isCut || epoch !== history.epoch) return this.endIfGone(true)
      const frames = toFrames(found.value.events)
      if (frames.length === 0) return this.endIfGone(false)
      this.published = frames.at(-1)!.seq
      this.subscribers.publish(frames)
      if (this.published < headSeq) this.isWoken = true
      return Effect.void
    })
  }

  /** Ends the subscriptions if the session was deleted or its history was lost. */
  private endIfGone(isLost: boolean): Effect.Effect<void, StoreUnavailable> {
    return Effect.map(this.log.records.find(this.session.tenant, this.session.id), record => {
      if (Option.isNone(record)) this.end(subscriber => subscriber.onDeleted())
      else if (isLost) this.end(subscriber => subscriber.onLost())
    })
  }

  private end(notify: (subscriber: Subscriber) => void): void {
    this.onEnd()
    this.subscribers.end(notify)
  }
}
