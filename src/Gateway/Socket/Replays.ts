import { Effect, type Scope } from "effect"
import { yieldToEventLoop } from "../../EventLoop.ts"
import * as Monotonic from "../../Monotonic.ts"
import * as Supervision from "../../Supervision.ts"
import { RoundRobin } from "../RoundRobin.ts"
import type { Feed } from "./Feed.ts"

/**
 * Reads missed events for all clients with a few fibers. They read a page for one feed of each tenant in turn, so that a
 * tenant with thousands of feeds delays only itself.
 */
export interface Replays {
  /** Continues to read for a feed of a tenant. */
  readonly add: (tenant: string, feed: Feed) => void
}

interface Replay {
  readonly tenant: string
  readonly feed: Feed
}

/** Pages that are read concurrently, for all tenants and for one. */
const readers = 8
const maxOfOne = 6

/** Maximum number of events in one read. */
const pageEvents = 256

/** The backoff of a feed that could not be read, in milliseconds. It doubles with each failure in a row. */
const backoff = { firstMillis: 500, maxMillis: 8000 }

/** Milliseconds after which a feed that cannot be read is ended. */
const timeoutMillis = 30_000

/** The interval at which postponed feeds are checked. */
const checkInterval = "500 millis"

/** A feed that could not be read and waits for its next attempt. */
interface Postponed {
  readonly replay: Replay
  /** When it first failed, and when it is read again, in monotonic milliseconds. */
  readonly since: number
  readonly until: number
  readonly pause: number
}

/**
 * A feed that cannot be read delays no other feed. It is ended at once if the stored session is damaged, and after a
 * timeout if the store is unavailable.
 */
export const make: Effect.Effect<Replays, never, Scope.Scope> = Effect.gen(function* () {
  const queue = new RoundRobin<Replay>()
  /** The feeds in the queue, each once. */
  const queued = new Set<Feed>()
  const postponed = new Map<Feed, Postponed>()
  const hasQueued = yield* Effect.makeLatch(false)
  const hasPostponed = yield* Effect.makeLatch(false)

  const add = (replay: Replay): void => {
    if (queued.has(replay.feed)) return
    queued.add(replay.feed)
    queue.add(replay.tenant, replay)
  }

  const postpone = (replay: Replay, before: Postponed | undefined) =>
    Effect.map(Monotonic.millis, now => {
      const since = before?.since ?? now
      const pause = before === undefined ? backoff.firstMillis : Math.min(before.pause * 2, backoff.maxMillis)
      if (now - since >= timeoutMillis) replay.feed.fail()
      else {
        postponed.set(replay.feed, { replay, since, until: now + pause, pause })
        hasPostponed.unsafeOpen()
      }
    })

  const advance = (replay: Replay) =>
    Effect.suspend(() => {
      const { feed } = replay
      queued.delete(feed)
      const before = postponed.get(feed)
      postponed.delete(feed)
      const { wanted, position } = feed
      if (wanted === undefined) return Effect.void
      if (!feed.hasRoom) return Effect.sync(() => feed.wait())
      return wanted.read(position, pageEvents).pipe(
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

  /** How many pages of each tenant are being read. */
  const reading = new Map<string, number>()
  const readingOf = (tenant: string): number => reading.get(tenant) ?? 0

  const begin = (tenant: string): void => void reading.set(tenant, readingOf(tenant) + 1)

  const end = (tenant: string): void => {
    const left = readingOf(tenant) - 1
    if (left > 0) reading.set(tenant, left)
    else reading.delete(tenant)
    // The tenant may have the next turn again.
    if (!queue.isEmpty) hasQueued.unsafeOpen()
  }

  const next = Effect.suspend(() => {
    const replay = queue.next(tenant => readingOf(tenant) < maxOfOne)
    if (replay === undefined) {
      hasQueued.unsafeClose()
      return hasQueued.await
    }
    const { tenant } = replay
    begin(tenant)
    return advance(replay).pipe(Effect.ensuring(Effect.sync(() => end(tenant))), Effect.zipRight(yieldToEventLoop))
  })

  /** Queues the postponed feeds that are due. They stay in `postponed` until they are read. */
  const check = Effect.gen(function* () {
    yield* hasPostponed.await
    yield* Effect.sleep(checkInterval)
    const now = yield* Monotonic.millis
    for (const [feed, { replay, until }] of postponed) {
      if (feed.wanted === undefined) postponed.delete(feed)
      else if (until <= now) add(replay)
    }
    if (postponed.size === 0) yield* hasPostponed.close
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
