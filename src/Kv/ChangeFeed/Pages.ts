import { Deferred, Effect, FiberId } from "effect"
import { ChangeLog, type ChangeQuery, type HistoryTrimmed } from "../ChangeLog.ts"
import { maxPage } from "../Requests.ts"
import type { StoreUnavailable } from "../Store.ts"
import { Page } from "./Page.ts"

export type ReadFailure = StoreUnavailable | HistoryTrimmed

/** Reads of the log, shared among all who ask the same. */
export interface Pages {
  /** A page that was read after the call: it holds all that was committed before. */
  readonly fresh: (query: ChangeQuery) => Effect.Effect<Page, ReadFailure>
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

/** What all who stand at the log's end read together: each picks its own tenant's changes out of it. */
export const tail = (after: number): ChangeQuery => ({ after, limit: maxPage, tenant: "" })

const cachedPages = 64
const cachedBytes = 16 * 1024 * 1024

/** Pages that were used last. At either bound the page that was not used for longest is dropped. */
class PageCache {
  private readonly pages = new Map<string, Page>()
  private bytes = 0

  get(key: string): Page | undefined {
    const page = this.pages.get(key)
    if (page !== undefined) {
      this.pages.delete(key)
      this.pages.set(key, page)
    }
    return page
  }

  put(key: string, page: Page): void {
    if (page.weight > cachedBytes) return
    this.drop(key)
    this.pages.set(key, page)
    this.bytes += page.weight
    for (const oldest of this.pages.keys()) {
      if (this.pages.size <= cachedPages && this.bytes <= cachedBytes) return
      this.drop(oldest)
    }
  }

  clear(): void {
    this.pages.clear()
    this.bytes = 0
  }

  private drop(key: string): void {
    this.bytes -= this.pages.get(key)?.weight ?? 0
    this.pages.delete(key)
  }
}

/**
 * At most one read of a kind is under way, with at most one more to come for those who asked since.
 *
 * The log only grows, so that a page which led on from `after` stays a true answer to a follower; only such pages
 * are kept. One that led nowhere is out of date with the next commit and is never kept.
 */
export const make: Effect.Effect<Pages, never, ChangeLog> = Effect.gen(function* () {
  const log = yield* ChangeLog
  const cache = new PageCache()
  const running = new Map<string, Flight>()
  const queued = new Map<string, Flight>()
  let end = 0

  const keep = (query: ChangeQuery, page: Page): Page => {
    // The log ends before what was seen of it: a backup was restored, and pages tell of what is no more. Where reads
    // overtake each other it only seems so, which does no harm.
    if (page.lastSeq <= query.after && page.lastSeq < end) {
      cache.clear()
      end = page.lastSeq
    }
    end = Math.max(end, page.lastSeq)
    if (page.lastSeq > query.after) cache.put(keyOf(query), page)
    return page
  }

  const fly = (query: ChangeQuery, flight: Flight): Effect.Effect<void> => {
    const key = keyOf(query)
    running.set(key, flight)
    return log.read(query).pipe(
      Effect.map(page => keep(query, Page.of(page))),
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
    Effect.suspend(() => {
      const key = keyOf(query)
      const cached = cache.get(key)
      if (cached !== undefined) return Effect.succeed(cached)
      const shared = tail(query.after)
      const sharedKey = keyOf(shared)
      if (key === sharedKey) return join(query)
      const base = cache.get(sharedKey)
      if (base === undefined && !running.has(sharedKey) && query.after < end) return join(query)
      return Effect.map(base === undefined ? join(shared) : Effect.succeed(base), page => {
        const own = page.split(query)[0]
        if (own.count > 0) cache.put(key, own)
        return own
      })
    })

  return { fresh, next, end: () => end }
})
