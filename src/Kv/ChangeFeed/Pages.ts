import { Deferred, Effect, FiberId } from "effect"
import { ChangeLog, type ChangeQuery, type HistoryTrimmed, type PrintedLog } from "../ChangeLog.ts"
import { maxPage } from "../Requests.ts"
import type { StoreUnavailable } from "../Store.ts"
import { type EncodedPage, Page } from "./Page.ts"
import { PageCache } from "./PageCache.ts"
import { Print } from "./Print.ts"

export type ReadFailure = StoreUnavailable | HistoryTrimmed

/** Whether a record that a reader needs cannot be read, while the rest of the log may be. */
export const isUnreadable = (failure: ReadFailure): boolean =>
  failure._tag === "StoreUnavailable" && failure.isUnreadable

/** Reads of the log, shared among all who ask the same. */
export interface Pages {
  /** A page that was read after the call: it holds all that was committed before. */
  readonly fresh: (query: ChangeQuery) => Effect.Effect<Page, ReadFailure>
  /** As `fresh`, for whoever wants nothing but the text. */
  readonly poll: (query: ChangeQuery) => Effect.Effect<EncodedPage, ReadFailure>
  /**
   * The next page for a reader that goes on from where its last one ended. It may be older than the call, but then
   * it leads on; a page that says "nothing new" is never older.
   */
  readonly next: (query: ChangeQuery) => Effect.Effect<Page, ReadFailure>
  /** The furthest `seq` that any read has seen. */
  readonly end: () => number
}

type Flight = Deferred.Deferred<Page, ReadFailure>

const keyOf = ({ after, limit, tenant }: ChangeQuery): string => `${after} ${limit} ${tenant}`

const MiB = 1024 * 1024

/** What all who stand at the log's end read together: each picks its own tenant's changes out of it. */
export const tail = (after: number): ChangeQuery => ({ after, limit: maxPage, tenant: "" })

/**
 * At most one read of a kind is under way, with at most one more to come for those who asked since.
 *
 * The log only grows, so that a page which led on from `after` stays a true answer to a follower; only such pages
 * are kept. One that led nowhere is out of date with the next commit and is never kept. A poll is answered from memory
 * only where the page is complete and the log's history is still the one that it was read from.
 */
export const make: Effect.Effect<Pages, never, ChangeLog> = Effect.gen(function* () {
  const log = yield* ChangeLog
  const cache = new PageCache<Page>(64, 16 * MiB)
  const prints = new PageCache<Print>(128, 8 * MiB)
  const running = new Map<string, Flight>()
  const queued = new Map<string, Flight>()
  let end = 0
  /** That of the log for which `cache` and `prints` are true. */
  let history: number | undefined
  const { printed } = log

  /** The log's history, with everything forgotten that was read from another. While nobody can tell it is the last known. */
  const current: Effect.Effect<number | undefined> =
    printed === undefined
      ? Effect.succeed(undefined)
      : Effect.match(printed.history, {
          onFailure: () => history,
          onSuccess: now => {
            if (now !== history) {
              prints.clear()
              cache.clear()
              history = now
            }
            return now
          }
        })

  const see = (query: ChangeQuery, page: { readonly lastSeq: number }): void => {
    // The log ends before what was seen of it: a backup was restored, and pages tell of what is no more. Where reads
    // overtake each other it only seems so, which does no harm.
    if (page.lastSeq <= query.after && page.lastSeq < end) {
      cache.clear()
      end = page.lastSeq
    }
    end = Math.max(end, page.lastSeq)
  }

  const keep = (query: ChangeQuery, page: Page, isLasting: boolean): Page => {
    see(query, page)
    if (isLasting && page.lastSeq > query.after) cache.put(keyOf(query), page)
    return page
  }

  /** Reads, and keeps what leads on, unless the history was another by the time that it was read. */
  const read = (query: ChangeQuery): Effect.Effect<Page, ReadFailure> =>
    Effect.flatMap(current, before =>
      Effect.zipWith(log.read(query), current, (page, after) => keep(query, Page.of(page), before === after))
    )

  const fly = (query: ChangeQuery, flight: Flight): Effect.Effect<void> => {
    const key = keyOf(query)
    running.set(key, flight)
    return read(query).pipe(
      Effect.onExit(exit => {
        running.delete(key)
        Deferred.unsafeDone(flight, exit)
        const follower = queued.get(key)
        if (follower === undefined) return Effect.void
        queued.delete(key)
        return Effect.forkDaemon(fly(query, follower))
      }),
      // Whoever waits for the flight learns how it ended.
      Effect.exit,
      Effect.asVoid
    )
  }

  // A read outlives the one who asked first, since others wait for it; the store bounds how long it takes.
  const launch = (query: ChangeQuery): Effect.Effect<Page, ReadFailure> =>
    Effect.uninterruptibleMask(restore => {
      const flight: Flight = Deferred.unsafeMake(FiberId.none)
      return Effect.zipRight(
        Effect.forkDaemon(Effect.interruptible(fly(query, flight))),
        restore(Deferred.await(flight))
      )
    })

  const join = (query: ChangeQuery): Effect.Effect<Page, ReadFailure> => {
    const flight = running.get(keyOf(query))
    return flight === undefined ? launch(query) : Deferred.await(flight)
  }

  const fresh = (query: ChangeQuery): Effect.Effect<Page, ReadFailure> =>
    Effect.suspend(() => {
      const key = keyOf(query)
      if (!running.has(key)) return launch(query)
      let flight = queued.get(key)
      if (flight === undefined) {
        flight = Deferred.unsafeMake(FiberId.none)
        queued.set(key, flight)
      }
      return Deferred.await(flight)
    })

  const next = (query: ChangeQuery): Effect.Effect<Page, ReadFailure> =>
    Effect.flatMap(current, () => {
      const key = keyOf(query)
      const cached = cache.get(key)
      if (cached !== undefined) return Effect.succeed(cached)
      const shared = tail(query.after)
      const sharedKey = keyOf(shared)
      if (key === sharedKey) return join(query)
      const base = cache.get(sharedKey)
      if (base === undefined && !running.has(sharedKey) && query.after < end) return join(query)
      const split = (page: Page): Page => {
        const own = page.split(query)[0]
        if (own.count > 0) cache.put(key, own)
        return own
      }
      if (base !== undefined) return Effect.succeed(split(base))
      // What cannot be read for all may be of no concern to this reader.
      return Effect.catchIf(Effect.map(join(shared), split), isUnreadable, () => join(query))
    })

  const print = (printed: PrintedLog, query: ChangeQuery): Effect.Effect<EncodedPage, ReadFailure> =>
    Effect.flatMap(printed.history, () =>
      Effect.flatMap(current, before => {
        const key = keyOf(query)
        const kept = prints.get(key)
        if (kept !== undefined) return Effect.succeed(kept)
        return Effect.zipWith(printed.read(query), current, (page, after) => {
          see(query, page)
          const made = Print.of(page)
          if (page.complete && after === before) prints.put(key, made)
          return made
        })
      })
    )

  const poll = printed === undefined ? fresh : (query: ChangeQuery) => print(printed, query)

  return { fresh, poll, next, end: () => end }
})
