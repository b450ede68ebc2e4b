/** Reads the events that clients have missed, for all clients and in turn for all tenants. */
import { Effect, type Scope } from "effect"
import * as Supervision from "../../base/Supervision.ts"
import { Backoff } from "../../base/Time/Backoff.ts"
import { yieldToEventLoop } from "../../base/Time/EventLoop.ts"
import * as Monotonic from "../../base/Time/Monotonic.ts"
import { turnOf } from "../../base/Time/PacedWork.ts"
import { FairPool } from "../FairPool.ts"
import type { Frame } from "../Sessions.ts"
import type { Feed } from "./Feed.ts"

/** Pages that are read concurrently, for all tenants and for one. */
const readers = 8
const maxOfOne = 6

/** Maximum number of events in one read. */
export const pageEvents = 256

/** The pauses of a feed that cannot be read, in milliseconds. */
const pauses = { first: 500, longest: 8000 } as const

/** Milliseconds after which a feed that cannot be read is given up. */
const timeoutMillis = 30_000

/** A feed of a tenant that reads missed events. */
interface Replay {
  readonly tenant: string
  readonly feed: Feed
}

/** The failures of a feed in a row. */
interface Failures {
  /** When the first one was, in monotonic milliseconds. */
  readonly since: number
  readonly backoff: Backoff
}

/** A queue that is first in, first out for each tenant, and round robin over tenants. */
export class RoundRobin<A> {
  private readonly queues = new Map<string, Set<A>>()

  get isEmpty(): boolean {
    return this.queues.size === 0
  }

  /** Adds an element to the queue of its tenant. An element that is queued already keeps its position. */
  add(tenant: string, item: A): void {
    const queue = this.queues.get(tenant)
    if (queue === undefined) this.queues.set(tenant, new Set([item]))
    else queue.add(item)
  }

  /** Takes the next element of the tenants that pass a test. */
  next(mayHaveTurn: (tenant: string) => boolean = () => true): A | undefined {
    for (const [tenant, queue] of this.queues) {
      if (!mayHaveTurn(tenant)) continue
      this.queues.delete(tenant)
      for (const item of queue) {
        queue.delete(item)
        if (queue.size > 0) this.queues.set(tenant, queue)
        return item
      }
    }
    return undefined
  }
}

/** Bytes of frames. */
export const sizeOf = (frames: ReadonlyArray<Frame>): number => frames.reduce((sum, { data }) => sum + data.length, 0)

/**
 * Reads missed events for all clients with a few fibers. They read a page for one feed of each tenant in turn, so that a
 * tenant with thousands of feeds delays only itself.
 *
 * A feed that cannot be read delays no other feed. It is ended at once if the stored session is damaged, and after a
 * timeout if the store is unavailable.
 */
export class Replays {
  private readonly queue = new RoundRobin<Replay>()
  /** The feeds in the queue, each once. */
  private readonly queued = new Set<Feed>()
  /** The failures of the feeds that could not be read at their last attempt. */
  private readonly failures = new WeakMap<Feed, Failures>()
  /** How many pages of each tenant are being read. */
  private readonly reading = new FairPool({ name: "reads of missed events", capacity: readers, maxOfOne })
  private readonly hasQueued = Effect.unsafeMakeLatch(false)
  /** Bytes of the last page of a feed: the next one may be as large, and is then read in its turn. */
  private readonly sizes = new WeakMap<Feed, number>()

  constructor(private readonly scope: Scope.Scope) {}

  /** Continues to read for a feed of a tenant. */
  add(tenant: string, feed: Feed): void {
    if (this.queued.has(feed)) return
    this.queued.add(feed)
    this.queue.add(tenant, { tenant, feed })
    this.hasQueued.unsafeOpen()
  }

  /** Reads the next page, or waits for a feed. */
  readonly next: Effect.Effect<void> = Effect.suspend(() => {
    const replay = this.queue.next(tenant => this.reading.mayHave(tenant, 1))
    if (replay === undefined) {
      this.hasQueued.unsafeClose()
      return this.hasQueued.await
    }
    const claim = this.reading.take(replay.tenant, 1)
    const end = Effect.sync(() => {
      claim?.release()
      // The tenant may have the next turn again.
      if (!this.queue.isEmpty) this.hasQueued.unsafeOpen()
    })
    return this.advance(replay).pipe(Effect.ensuring(end), Effect.zipRight(yieldToEventLoop))
  })

  private advance(replay: Replay): Effect.Effect<void> {
    return Effect.suspend(() => {
      const { feed } = replay
      this.queued.delete(feed)
      const before = this.failures.get(feed)
      this.failures.delete(feed)
      const { wanted, position } = feed
      if (wanted === undefined) return Effect.void
      if (!feed.hasRoom) return Effect.sync(() => feed.wait())
      return turnOf(this.sizes.get(feed) ?? 0).pipe(
        Effect.zipRight(wanted.read(position, pageEvents)),
        Effect.map(({ frames, trimmedSeq }) => {
          this.sizes.set(feed, sizeOf(frames))
          return feed.onPage(position, frames, trimmedSeq)
        }),
        Effect.catchTags({
          SessionUnreadable: () => Effect.sync(() => feed.fail()),
          StoreUnavailable: () => this.postpone(replay, before)
        }),
        Effect.catchAllDefect(defect =>
          Effect.zipRight(
            Effect.logError("A client's events could not be read", defect),
            Effect.sync(() => feed.fail())
          )
        )
      )
    })
  }

  /** Reads a feed again after a pause, unless it has failed for too long. */
  private postpone({ feed, tenant }: Replay, before: Failures | undefined): Effect.Effect<void> {
    return Effect.flatMap(Monotonic.millis, now => {
      const failed = before ?? { backoff: new Backoff(pauses.first, pauses.longest), since: now }
      if (now - failed.since >= timeoutMillis) return Effect.sync(() => feed.fail())
      this.failures.set(feed, failed)
      const later = Effect.delay(
        Effect.sync(() => this.add(tenant, feed)),
        failed.backoff.next()
      )
      return Effect.asVoid(Effect.forkIn(Effect.interruptible(later), this.scope))
    })
  }
}

/** Reads until the scope closes. */
export const makeReplays: Effect.Effect<Replays, never, Scope.Scope> = Effect.gen(function* () {
  const replays = new Replays(yield* Effect.scope)
  for (let reader = 0; reader < readers; reader++) {
    yield* Supervision.forkScoped("replay of session events", Effect.forever(replays.next))
  }
  return replays
})
