/**
 * Reads of the change log, page by page.
 */
import { Effect, Exit, FiberRef, Option, Schema } from "effect"
import { MiB } from "../../Bytes.ts"
import * as Direct from "../../Direct.ts"
import { yieldToEventLoop } from "../../EventLoop.ts"
import { DirectFlight } from "../../SingleFlight.ts"
import { ChangeLog, type ChangeQuery, type HistoryTrimmed } from "../ChangeLog.ts"
import { maxPage } from "../Requests.ts"
import type { StoreUnavailable } from "../Store.ts"
import { Page } from "./Page.ts"

export type ReadFailure = StoreUnavailable | HistoryTrimmed

/** Whether a record that a reader needs cannot be read, while the rest of the log may be. */
export const isUnreadable = (failure: ReadFailure): boolean =>
  failure._tag === "StoreUnavailable" && failure.isUnreadable

/** The log is another one than the follower knows, so that its position means nothing there: list again. */
export class LogReplaced extends Schema.TaggedError<LogReplaced>()("LogReplaced", {
  /** That of the log there is. */
  epoch: Schema.String
}) {}

/** Which part of the log a follower wants, and of which log. */
export interface FollowQuery extends ChangeQuery {
  /** The epoch of the log that `after` is a position of, if the follower knows it. */
  readonly epoch?: string | undefined
}

/** Whether what was read is of another log than the follower knows. */
export const isOfOther = (
  { epoch }: { readonly epoch?: string | undefined },
  read: { readonly epoch: string }
): boolean => epoch !== undefined && epoch !== read.epoch

/** A read that fails where it is of another log than the follower knows. The effect is direct where the read is. */
export const ofKnownLog = (
  query: FollowQuery,
  read: Effect.Effect<Page, ReadFailure>
): Effect.Effect<Page, ReadFailure | LogReplaced> => {
  if (query.epoch === undefined) return read
  const replacedBy = (result: Page | ReadFailure): LogReplaced | undefined =>
    "epoch" in result && isOfOther(query, result) ? new LogReplaced({ epoch: result.epoch }) : undefined
  return Direct.matchEffect(read, {
    onFailure: error => Exit.fail(replacedBy(error) ?? error),
    onSuccess: (page): Exit.Exit<Page, LogReplaced> => {
      const replaced = replacedBy(page)
      return replaced === undefined ? Exit.succeed(page) : Exit.fail(replaced)
    }
  })
}

/** Reads of the log, shared among all who ask the same. */
export interface Pages {
  /** A page that holds all that was committed before the call. It is direct where the log is. */
  readonly fresh: (query: ChangeQuery) => Effect.Effect<Page, ReadFailure>
  /**
   * The next page for a reader that goes on from where its last one ended. It may be older than the call, but then
   * it has changes, or a later `lastSeq`; a page that says "nothing new" is never older.
   */
  readonly next: (query: ChangeQuery) => Effect.Effect<Page, ReadFailure>
  /** The furthest `seq` that any read has seen. */
  readonly end: () => number
  /** The epoch of the log that was read last; `undefined` before the first read. */
  readonly epoch: () => string | undefined
}

/** Names hold no U+0000, so that it tells them apart. */
export const keyOf = ({ after, limit, namespace, prefix = "", tenant }: ChangeQuery): string =>
  namespace === undefined
    ? `${after} ${limit} ${tenant}`
    : `${after} ${limit} ${tenant}\u0000${namespace}\u0000${prefix}`

/** The pages that were used last, within two bounds: the least recently used page is evicted first. */
class PageCache {
  private readonly pages = new Map<string, Page>()
  private bytes = 0

  constructor(
    private readonly maxPages: number,
    private readonly maxBytes: number
  ) {}

  get(key: string): Page | undefined {
    const page = this.pages.get(key)
    if (page !== undefined) {
      this.pages.delete(key)
      this.pages.set(key, page)
    }
    return page
  }

  put(key: string, page: Page): void {
    if (page.weight > this.maxBytes) return
    this.drop(key)
    this.pages.set(key, page)
    this.bytes += page.weight
    for (const oldest of this.pages.keys()) {
      if (this.pages.size <= this.maxPages && this.bytes <= this.maxBytes) return
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

/** Whether a read has ended before it found anything, and before the end of the log. */
const isCut = (page: Page): boolean => page.isComplete && page.count === 0

/** The query that readers at the end of the log share. Each takes its own tenant's changes from the page. */
export const tail = (after: number): ChangeQuery => ({ after, limit: maxPage, tenant: "" })

/**
 * At most one read of a query is running, and at most one more is queued for readers that asked since.
 *
 * The log only grows, so a page with a `lastSeq` beyond `after` stays valid for followers. Only such pages are cached. A
 * complete page also answers a fresh read. The cache is cleared when the history changes.
 */
export const make: Effect.Effect<Pages, never, ChangeLog> = Effect.gen(function* () {
  const log = yield* ChangeLog
  // A failure is not logged here: the readers receive it.
  const runtime = yield* Effect.locally(Effect.runtime<never>(), FiberRef.unhandledErrorLogLevel, Option.none())
  const cache = new PageCache(192, 24 * MiB)
  const reads = new DirectFlight<string, Page, ReadFailure>(runtime, "A reader of the change log failed on its page")
  let end = 0
  /** The epoch of the log that was read last. */
  let epoch: string | undefined
  /** The history that the cached pages belong to. */
  let history: number | undefined

  /** The current history. The cache is cleared when it has changed. */
  const known: Effect.Effect<number, StoreUnavailable> = Direct.map(log.history, now => {
    if (now !== history) cache.clear()
    history = now
    return now
  })

  /** The same, or the last known one while the store is unavailable. */
  const last: Effect.Effect<number | undefined> = Direct.catchAll(known, () => Direct.sync(() => history))

  const keep = (query: ChangeQuery, page: Page, isLasting: boolean): Page => {
    // Another log, or one that ends before a position that was read: a backup was restored, and cached pages are
    // invalid. Reads that overtake each other look the same; to clear the cache is harmless then.
    if (page.epoch !== epoch || (page.lastSeq <= query.after && page.lastSeq < end)) {
      cache.clear()
      end = page.lastSeq
      epoch = page.epoch
    }
    // A complete page that is not full is followed by records that were there already.
    const hasNext = page.isComplete && page.count < query.limit
    end = Math.max(end, hasNext ? page.lastSeq + 1 : page.lastSeq)
    if (isLasting && page.lastSeq > query.after) cache.put(keyOf(query), page)
    return page
  }

  /** Reads a page, and caches it unless the history has changed meanwhile. */
  const read = (query: ChangeQuery): Effect.Effect<Page, ReadFailure> =>
    Direct.flatMap(last, before =>
      Direct.flatMap(log.read(query), read =>
        Direct.flatMap(last, after => {
          const page = keep(query, Page.of(read), before !== undefined && before === after)
          // The reader goes on at once: others must have their turn.
          return isCut(page) ? Effect.as(yieldToEventLoop, page) : Exit.succeed(page)
        })
      )
    )

  // A read outlives the one who asked first, since others wait for it; the store bounds how long it takes.
  const join = (query: ChangeQuery): Effect.Effect<Page, ReadFailure> => reads.join(keyOf(query), read(query))

  const fresh = (query: ChangeQuery): Effect.Effect<Page, ReadFailure> =>
    Direct.flatMap(known, () => {
      const key = keyOf(query)
      const kept = cache.get(key)
      if (kept?.isComplete === true) return Effect.succeed(kept)
      return reads.next(key, read(query))
    })

  const next = (query: ChangeQuery): Effect.Effect<Page, ReadFailure> =>
    Effect.flatMap(last, () => {
      const key = keyOf(query)
      const cached = cache.get(key)
      if (cached !== undefined) return Effect.succeed(cached)
      const shared = tail(query.after)
      const sharedKey = keyOf(shared)
      if (key === sharedKey) return join(query)
      const base = cache.get(sharedKey)
      if (base === undefined && !reads.isRunning(sharedKey) && query.after < end) return join(query)
      const split = (page: Page): Page => {
        const own = page.split(query)[0]
        if (own.count > 0) cache.put(key, own)
        return own
      }
      if (base !== undefined) return Effect.succeed(split(base))
      // The record that cannot be read may belong to another tenant.
      return Effect.catchIf(Effect.map(join(shared), split), isUnreadable, () => join(query))
    })

  return { fresh, next, end: () => end, epoch: () => epoch }
})
