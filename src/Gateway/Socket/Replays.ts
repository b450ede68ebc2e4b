import { Effect, type Scope } from "effect"
import { yieldToEventLoop } from "../../EventLoop.ts"
import * as Monotonic from "../../Monotonic.ts"
import * as Supervision from "../../Supervision.ts"
import * as EventPace from "../../Upstream/EventPace.ts"
import { FairPool } from "../FairPool.ts"
import { RoundRobin } from "../RoundRobin.ts"
import type { Frame } from "../Sessions.ts"
import type { Feed } from "./Feed.ts"
import { type Failures, PostponedReplays, type Replay } from "./PostponedReplays.ts"

/**
 * Reads missed events for all clients with a few fibers. They read a page for one feed of each tenant in turn, so that a
 * tenant with thousands of feeds delays only itself.
 */
export interface Replays {
  /** Continues to read for a feed of a tenant. */
  readonly add: (tenant: string, feed: Feed) => void
}

/** Pages that are read concurrently, for all tenants and for one. */
const readers = 8
const maxOfOne = 6

/** Maximum number of events in one read. */
const pageEvents = 256

/** The interval at which postponed feeds are checked. */
const checkInterval = "500 millis"

const sizeOf = (frames: ReadonlyArray<Frame>): number => frames.reduce((sum, { data }) => sum + data.length, 0)

/**
 * A feed that cannot be read delays no other feed. It is ended at once if the stored session is damaged, and after a
 * timeout if the store is unavailable.
 */
export const make: Effect.Effect<Replays, never, Scope.Scope> = Effect.gen(function* () {
  const queue = new RoundRobin<Replay>()
  /** The feeds in the queue, each once. */
  const queued = new Set<Feed>()
  const postponed = new PostponedReplays()
  /** How many pages of each tenant are being read. */
  const reading = new FairPool({ name: "reads of missed events", capacity: readers, maxOfOne })
  const hasQueued = yield* Effect.makeLatch(false)
  const hasPostponed = yield* Effect.makeLatch(false)

  /** Bytes of the last page of a feed: the next one may be as large, and is then read in its turn. */
  const sizes = new WeakMap<Feed, number>()

  const add = (replay: Replay): void => {
    if (queued.has(replay.feed)) return
    queued.add(replay.feed)
    queue.add(replay.tenant, replay)
  }

  const postpone = (replay: Replay, before: Failures | undefined) =>
    Effect.map(Monotonic.millis, now => {
      if (postponed.add(replay, before, now)) hasPostponed.unsafeOpen()
      else replay.feed.fail()
    })

  const advance = (replay: Replay) =>
    Effect.suspend(() => {
      const { feed } = replay
      queued.delete(feed)
      const before = postponed.take(feed)
      const { wanted, position } = feed
      if (wanted === undefined) return Effect.void
      if (!feed.hasRoom) return Effect.sync(() => feed.wait())
      return EventPace.turn(sizes.get(feed) ?? 0).pipe(
        Effect.zipRight(wanted.read(position, pageEvents)),
        Effect.tap(({ frames }) => {
          sizes.set(feed, sizeOf(frames))
        }),
        Effect.map(({ frames, trimmedSeq }) => feed.onPage(position, frames, trimmedSeq)),
        Effect.catchTags({
          SessionUnreadable: () => Effect.sync(() => feed.fail()),
          StoreUnavailable: () => postpone(replay, before)
        }),
        Effect.catchAllDefect(defect =>
          Effect.zipRight(
            Effect.logError("A client's events could not be read", defect),
            Effect.sync(() => feed.fail())
          )
        )
      )
    })

  const next = Effect.suspend(() => {
    const replay = queue.next(tenant => reading.mayHave(tenant, 1))
    if (replay === undefined) {
      hasQueued.unsafeClose()
      return hasQueued.await
    }
    const claim = reading.take(replay.tenant, 1)
    const end = Effect.sync(() => {
      claim?.release()
      // The tenant may have the next turn again.
      if (!queue.isEmpty) hasQueued.unsafeOpen()
    })
    return advance(replay).pipe(Effect.ensuring(end), Effect.zipRight(yieldToEventLoop))
  })

  /** Queues the postponed feeds that are due. They stay in `postponed` until they are read. */
  const check = Effect.gen(function* () {
    yield* hasPostponed.await
    yield* Effect.sleep(checkInterval)
    for (const replay of postponed.due(yield* Monotonic.millis)) add(replay)
    if (postponed.isEmpty) yield* hasPostponed.close
    if (!queue.isEmpty) hasQueued.unsafeOpen()
  })

  for (let reader = 0; reader < readers; reader++) {
    yield* Supervision.forkScoped("replay of session events", Effect.forever(next))
  }
  yield* Supervision.forkScoped("replay of session events that could not be read", Effect.forever(check))

  return {
    add: (tenant, feed) => {
      add({ tenant, feed })
      hasQueued.unsafeOpen()
    }
  }
})
