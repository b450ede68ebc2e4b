/** Pages of the change log in each form in which they are sent, and the reads of them that all followers share. */

import { Effect, Exit, FiberRef, Option, Schema, type Scope } from "effect"
import { MiB } from "../../base/Bytes.ts"
import * as Direct from "../../base/Direct.ts"
import { DirectFlight, type Work } from "../../base/SingleFlight.ts"
import { yieldToEventLoop } from "../../base/Time/EventLoop.ts"
import * as TimeLimit from "../../base/TimeLimit.ts"
import { textFrame } from "../../Http/WebSocket.ts"
import { detached, type EncodedChange, Records } from "../Change.ts"
import { ChangeLog, type ChangePage, type ChangeQuery, type HistoryTrimmed, selects } from "../ChangeLog.ts"
import { maxPage } from "../Requests.ts"
import { StoreUnavailable } from "../Store.ts"

/**
 * Answers with more characters are kept as bytes. Node copies a text for each client that does not take it at once. All
 * receivers share bytes.
 */
const largeText = 16_384

/** A text between two of ASCII characters. A large one is written once, and not copied into a longer text before. */
const enclosed = (head: string, text: string, tail: string): string | Uint8Array => {
  if (text.length < largeText) return `${head}${text}${tail}`
  const bytes = Buffer.allocUnsafeSlow(head.length + Buffer.byteLength(text) + tail.length)
  bytes.write(head)
  bytes.write(tail, head.length + bytes.write(text, head.length))
  return bytes
}

/** How far a reader has read a log. */
export interface Position {
  readonly epoch: string
  /** The last `seq` scanned. */
  readonly after: number
}

/** A page of the log in each form in which it is sent. Each form is made at most once for all readers of the page. */
export class Page {
  private answerBody: string | Uint8Array | undefined
  private eventBytes: Uint8Array | undefined
  private frameBytes: Buffer | undefined
  private readonly lastSeqsByPart: { [part in "tenant" | "namespace"]?: ReadonlyMap<string, number> } = {}
  private readonly records: Records

  constructor(
    changes: ReadonlyArray<EncodedChange>,
    readonly lastSeq: number,
    readonly epoch: string,
    /** Whether no later commit can add to it. */
    readonly isComplete: boolean,
    /** Whether the log may have had more records after `lastSeq`: the reader has to read again. */
    readonly hasMore: boolean = isComplete
  ) {
    this.records = Records.of(changes)
  }

  static of({ changes, epoch, isComplete, lastSeq }: ChangePage): Page {
    return new Page(changes, lastSeq, epoch, isComplete)
  }

  /** A page without changes, which only shows how far the log was scanned. */
  static empty(lastSeq: number, epoch: string, hasMore = false): Page {
    return new Page([], lastSeq, epoch, false, hasMore)
  }

  /** The page for a reader that may have to read again. */
  get continued(): Page {
    return this.hasMore ? this : new Page(this.records.list, this.lastSeq, this.epoch, this.isComplete, true)
  }

  get end(): Position {
    return { epoch: this.epoch, after: this.lastSeq }
  }

  get count(): number {
    return this.records.count
  }

  /** The JSON array of the change records. */
  get changes(): string {
    return `[${this.records.text}]`
  }

  get answer(): string | Uint8Array {
    this.answerBody ??= enclosed('{"changes":[', this.records.text, `],"lastSeq":${this.lastSeq}}`)
    return this.answerBody
  }

  /** The Server-Sent Events, one for each change. JSON text has no line breaks, so that one `data` line contains it. */
  get events(): Uint8Array {
    this.eventBytes ??= Buffer.from(
      this.records.list.map(({ json, seq }) => `id: ${seq}@${this.epoch}\ndata: ${json}\n\n`).join("")
    )
    return this.eventBytes
  }

  /** The frame of a WebSocket. */
  get frame(): Buffer {
    this.frameBytes ??= textFrame(
      `{"type":"changes","changes":${this.changes},"lastSeq":${this.lastSeq},"epoch":"${this.epoch}"}`
    )
    return this.frameBytes
  }

  /** The approximate memory of the page with all its forms, in bytes. */
  get weight(): number {
    return 256 + 3 * this.records.size
  }

  /** The last `seq` of each tenant, or of each namespace, that has changes here. */
  lastSeqs(part: "tenant" | "namespace"): ReadonlyMap<string, number> {
    this.lastSeqsByPart[part] ??= new Map(this.records.list.map(record => [record[part], record.seq]))
    return this.lastSeqsByPart[part]
  }

  /** Whether the page has a record after `after` that a query selects. */
  hasFor(query: ChangeQuery, after: number): boolean {
    return this.records.list.some(record => record.seq > after && selects(query, record))
  }

  /** Applies a query to an unfiltered page. Returns at least one page. The last one ends where this page ends. */
  split(query: ChangeQuery): readonly [Page, ...Array<Page>] {
    const { after, limit } = query
    const selected = this.records.list.filter(record => record.seq > after && selects(query, record))
    if (selected.length === this.count && selected.length <= limit) return [this]
    const records = selected.map(detached)
    if (records.length <= limit) return [new Page(records, this.lastSeq, this.epoch, false, this.hasMore)]
    const head = new Page(records.slice(0, limit), records[limit - 1]!.seq, this.epoch, true)
    const pages: [Page, ...Array<Page>] = [head]
    for (let start = limit; start < records.length; start += limit) {
      const part = records.slice(start, start + limit)
      const isLast = start + limit >= records.length
      const lastSeq = isLast ? this.lastSeq : part.at(-1)!.seq
      pages.push(new Page(part, lastSeq, this.epoch, !isLast, !isLast || this.hasMore))
    }
    return pages
  }
}

/** Why a page cannot be read. */
export type ReadFailure = StoreUnavailable | HistoryTrimmed

/** Whether a record that a reader needs cannot be read. The rest of the log may be readable. */
export const isUnreadable = (failure: ReadFailure): boolean =>
  failure._tag === "StoreUnavailable" && failure.isUnreadable

/** The log has another epoch than the follower's position, which is therefore invalid: list again. */
export class LogReplaced extends Schema.TaggedError<LogReplaced>()("LogReplaced", {
  /** The epoch of the current log. */
  epoch: Schema.String
}) {}

/** The part of the log that a follower reads, and its epoch. */
export interface FollowQuery extends ChangeQuery {
  /** The epoch of the log that `after` belongs to, if the follower knows it. */
  readonly epoch?: string | undefined
}

/** Whether a result belongs to another log than the follower's. */
export const isOfOther = (
  { epoch }: { readonly epoch?: string | undefined },
  read: { readonly epoch: string }
): boolean => epoch !== undefined && epoch !== read.epoch

/**
 * Fails with `LogReplaced` if the result of a read belongs to another log than the follower's. The effect is direct if
 * the read is.
 */
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

/** Reads of the log, shared among all callers with the same query. */
export interface Pages {
  /**
   * A page with everything that was committed before the call. It fails within two seconds, with all reads of the log
   * that it needs, unless the page is arriving then. The effect is direct.
   */
  readonly fresh: (query: ChangeQuery) => Effect.Effect<Page, ReadFailure>
  /**
   * The next page for a reader that continues from its last one. It may be older than the call if it has changes, or a
   * later `lastSeq`. A page without news is never older.
   */
  readonly next: (query: ChangeQuery) => Effect.Effect<Page, ReadFailure>
  /** The highest `seq` that any read has seen. */
  readonly end: () => number
  /** The epoch of the last read; `undefined` before the first read. */
  readonly epoch: () => string | undefined
}

/** Names never contain U+0000, so that the key is unambiguous. */
export const keyOf = ({ after, limit, namespace, prefix = "", tenant }: ChangeQuery): string =>
  namespace === undefined
    ? `${after} ${limit} ${tenant}`
    : `${after} ${limit} ${tenant}\u0000${namespace}\u0000${prefix}`

/** The most recently used pages, within two bounds. */
class PageCache {
  private readonly pages = new Map<string, Page>()
  /** The keys of the last pages that were not kept. */
  private readonly passed = new Set<string>()
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

  /**
   * Keeps a page that was already asked for a short time ago. Pages that are kept outlive the young generation: if each
   * reader asks for another one, major collections take as much time as the reads.
   */
  putAgain(key: string, page: Page): void {
    if (this.passed.delete(key)) return this.put(key, page)
    this.passed.add(key)
    if (this.passed.size <= this.maxPages) return
    for (const oldest of this.passed) return void this.passed.delete(oldest)
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

/** Whether a read of a limited part of the log has found nothing, before the end of the log. */
const isCut = (page: Page): boolean => page.isComplete && page.count === 0

/** The time in which a request must fail if the store does not answer, in milliseconds, less the time for the rest. */
const failureMillis = 1900

/** The query that readers at the end of the log share. Each reader selects its changes from the page. */
export const tail = (after: number): ChangeQuery => ({ after, limit: maxPage, tenant: "" })

/** What reads have shown of the log, and the pages that are kept of it. */
class KnownLog {
  readonly cache = new PageCache(192, 24 * MiB)
  /** The highest `seq` that any read has seen. */
  end = 0
  /** The epoch of the last read. */
  epoch: string | undefined
  /** The history that the cached pages belong to. */
  history: number | undefined
  /** The current history. Clears the cache if it has changed. */
  readonly current: Effect.Effect<number, StoreUnavailable>

  constructor(history: Effect.Effect<number, StoreUnavailable>) {
    this.current = Direct.map(history, now => {
      if (now !== this.history) this.cache.clear()
      this.history = now
      return now
    })
  }

  /** Notes what a page shows of the log, and caches it if it lasts. */
  keep(query: ChangeQuery, page: Page, isLasting: boolean, isFollowed: boolean): Page {
    // The log was replaced, or ends before a position that was read, after a restore: cached pages are invalid.
    // Concurrent reads may look the same; clearing the cache is harmless then.
    if (page.epoch !== this.epoch || (page.lastSeq <= query.after && page.lastSeq < this.end)) {
      this.cache.clear()
      this.end = page.lastSeq
      this.epoch = page.epoch
    }
    // A complete page that is not full is followed by records that were present already.
    const hasNext = page.isComplete && page.count < query.limit
    this.end = Math.max(this.end, hasNext ? page.lastSeq + 1 : page.lastSeq)
    if (!isLasting || page.lastSeq <= query.after) return page
    if (isFollowed || !page.isComplete) this.cache.put(keyOf(query), page)
    else this.cache.putAgain(keyOf(query), page)
    return page
  }
}

/**
 * At most one read of a query is running, and at most one more is queued for later callers.
 *
 * The log only grows, so that a page with a `lastSeq` beyond `after` stays valid for followers. Only such pages are
 * cached. A complete page also answers a fresh read. The cache is cleared when the history changes.
 */
export const make: Effect.Effect<Pages, never, ChangeLog | Scope.Scope> = Effect.gen(function* () {
  const log = yield* ChangeLog
  // A failure is not logged here: the readers receive it.
  const runtime = yield* Effect.locally(Effect.runtime<never>(), FiberRef.unhandledErrorLogLevel, Option.none())
  const reads = new DirectFlight<string, Page, ReadFailure>(runtime, "A reader of the change log failed on its page")
  const limited = yield* TimeLimit.make<ReadFailure>(runtime, {
    name: "time limit of reads of the change log",
    millis: failureMillis,
    onTimeout: () => new StoreUnavailable({ reason: `no answer within ${failureMillis} ms` })
  })
  const known = new KnownLog(log.history)

  /** The current history, or the last known one while the store is unavailable. */
  const last: Effect.Effect<number | undefined> = Direct.catchAll(limited(known.current), () =>
    Direct.sync(() => known.history)
  )

  /** Reads a page, and caches it unless the history has changed since its callers have asked for that. */
  const read =
    (query: ChangeQuery, isFollowed: boolean): Work<Page, ReadFailure> =>
    onSent => {
      const before = known.history
      return Direct.flatMap(log.read(query, onSent), read =>
        Direct.flatMap(last, after => {
          const page = known.keep(query, Page.of(read), before !== undefined && before === after, isFollowed)
          // The reader continues at once. Other work must run in between.
          return isCut(page) ? Effect.as(yieldToEventLoop, page) : Exit.succeed(page)
        })
      )
    }

  // A read is not interrupted with its first caller, since others wait for it. The store bounds its time.
  const join = (query: ChangeQuery): Effect.Effect<Page, ReadFailure> => reads.join(keyOf(query), read(query, true))

  const fresh = (query: ChangeQuery): Effect.Effect<Page, ReadFailure> =>
    Direct.suspend(() => {
      const key = keyOf(query)
      let isArriving = (): boolean => false
      const page = Direct.flatMap(known.current, () => {
        const kept = known.cache.get(key)
        if (kept?.isComplete === true) return Effect.succeed(kept)
        return reads.next(key, read(query, false), ofRead => {
          isArriving = ofRead
        })
      })
      return limited(page, () => isArriving())
    })

  const next = (query: ChangeQuery): Effect.Effect<Page, ReadFailure> =>
    Effect.flatMap(last, () => {
      const key = keyOf(query)
      const cached = known.cache.get(key)
      if (cached !== undefined) return Effect.succeed(cached)
      const shared = tail(query.after)
      const sharedKey = keyOf(shared)
      if (key === sharedKey) return join(query)
      const base = known.cache.get(sharedKey)
      if (base === undefined && !reads.isRunning(sharedKey) && query.after < known.end) return join(query)
      const split = (page: Page): Page => {
        const own = page.split(query)[0]
        if (own.count > 0) known.cache.put(key, own)
        return own
      }
      if (base !== undefined) return Effect.succeed(split(base))
      // The unreadable record may belong to another tenant.
      return Effect.catchIf(Effect.map(join(shared), split), isUnreadable, () => join(query))
    })

  return { fresh, next, end: () => known.end, epoch: () => known.epoch }
})
