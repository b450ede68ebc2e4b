/**
 * The sessions of a tenant in the key-value store: their quota, and lists of them.
 */
import { type Context, Duration, Effect, Exit, Option } from "effect"
import { yieldToEventLoop } from "../../base/Time/EventLoop.ts"
import { decode } from "../../Kv/Entry.ts"
import type { ListPage, ListQuery, Store, StoreUnavailable } from "../../Kv/Store.ts"
import type { Session } from "../Protocol/Fields.ts"
import { cursorChars, listedSessions } from "../Protocol/Limits.ts"
import type { SessionEvents } from "../SessionEvents.ts"
import type { SessionNodesShape } from "../SessionNodes.ts"
import { InvalidCursor, InvalidList, type ListSessions, type SessionPage, SessionTooLarge } from "../Sessions.ts"
import * as ActivityList from "./ActivityList.ts"
import { viewOfStored } from "./Instance/LaunchConfiguration.ts"
import type { SecretPool } from "./Session/SecretPool.ts"
import { isSessionId, keyOf, namespaceOf, readRecord, type SessionRecord } from "./Session/SessionRecords.ts"
import type { SessionCache } from "./SessionCache.ts"

/** The sources of lists of sessions. */
export interface Sources {
  readonly store: Context.Tag.Service<Store>
  readonly events: Context.Tag.Service<SessionEvents>
  readonly nodes: Pick<SessionNodesShape, "elsewhere">
  readonly cache: Pick<SessionCache, "peek">
  readonly secrets: SecretPool
  /** See `MissingHistories`. */
  readonly createMissing: (tenant: string) => Effect.Effect<void, StoreUnavailable>
}

/** A page ends early at this many characters of records. */
const pageChars = 1024 * 1024

/** Maximum number of reads of the store for one request. Entries that are not sessions make several reads necessary. */
const maxReads = 4

/** The key of the last entry of a page, as a cursor. */
const cursorOf = (key: string): string => Buffer.from(key).toString("base64url")

const keyOfCursor = (cursor: string): Effect.Effect<string, InvalidCursor> =>
  Effect.suspend(() => {
    const key = Buffer.from(cursor, "base64url").toString()
    // No key has U+0000, but cursors of the other order do.
    return cursor.length <= cursorChars && key !== "" && !key.includes("\u0000") && cursorOf(key) === cursor
      ? Effect.succeed(key)
      : new InvalidCursor()
  })

/** A page of entries. The store is never too busy for a page without a count. */
const pageOf = (
  store: Context.Tag.Service<Store>,
  query: Omit<ListQuery, "isCounted">
): Effect.Effect<ListPage, StoreUnavailable> => Effect.catchTag(store.list(query), "StoreBusy", Effect.die)

/** A page in the order of creation: an id starts with the time of its creation. Entries that are not sessions are left out. */
const pageByCreation = (
  store: Context.Tag.Service<Store>,
  tenant: string,
  limit: number,
  cursor: string | undefined
): Effect.Effect<ActivityList.RecordPage, InvalidCursor | StoreUnavailable> =>
  Effect.gen(function* () {
    const namespace = namespaceOf(tenant)
    const records: Array<SessionRecord> = []
    let after = cursor === undefined ? "" : yield* keyOfCursor(cursor)
    let more = true
    let chars = 0
    const isFull = () => records.length >= limit || chars >= pageChars
    for (let reads = 0; more && reads < maxReads && !isFull(); reads++) {
      const rest = limit - records.length
      const page = yield* pageOf(store, { namespace, prefix: "", after, limit: rest, isDescending: true })
      more = page.more
      for (const { key, value } of page.entries.map(decode)) {
        if (isFull()) {
          more = true
          break
        }
        after = key
        const record = isSessionId(key) ? readRecord(tenant, key, value) : Option.none()
        if (Option.isNone(record)) continue
        records.push(record.value)
        chars += value.length
      }
    }
    return { records, cursor: more ? cursorOf(after) : undefined }
  })

/** Lists the sessions of a tenant, the newest first or the last active first. */
export const makeList = ({ cache, createMissing, events, nodes, secrets, store }: Sources) => {
  const known = (keys: ReadonlyArray<string>) => Effect.all([events.summaries(keys), nodes.elsewhere(keys)])

  const viewsOf = (tenant: string, records: ReadonlyArray<SessionRecord>) =>
    Effect.map(known(records.map(({ id }) => keyOf(tenant, id))), ([summaries, elsewhere]) =>
      records.map((record, index): Session => {
        const key = keyOf(tenant, record.id)
        const stored = () => viewOfStored(record, summaries[index], elsewhere.has(key) ? undefined : secrets.get(key))
        return cache.peek(key)?.view() ?? stored()
      })
    )

  return (
    tenant: string,
    { limit = listedSessions, ...request }: ListSessions
  ): Effect.Effect<SessionPage, InvalidCursor | InvalidList | StoreUnavailable> =>
    Effect.gen(function* () {
      yield* yieldToEventLoop
      const isByActivity = request.order === "activity"
      const [filter] = Object.keys(ActivityList.filterOf(request))
      if (filter !== undefined && !isByActivity) {
        return yield* new InvalidList({ message: `${filter}: needs the order "activity"` })
      }
      if (isByActivity) yield* createMissing(tenant)
      const page = yield* isByActivity
        ? ActivityList.pageOf({ store, events }, tenant, limit, request)
        : pageByCreation(store, tenant, limit, request.cursor)
      const sessions = yield* viewsOf(tenant, page.records)
      return page.cursor === undefined ? { sessions } : { sessions, cursor: page.cursor }
    })
}

/** Maximum number of tenants whose counts are kept. Above it the least recently used one is dropped. */
const maxTenants = 10_000

/** Entries of one read when sessions are counted. */
const pageEntries = 1000

/** Minimum milliseconds between counts of a tenant at its limit. The key-value API may have removed sessions. */
const recountAfter = Duration.toMillis("1 second")

/** The count of a tenant. */
interface Count {
  /** An upper bound of the number of sessions; `undefined` before the first count. */
  max: number | undefined
  /** Creations in progress, which are part of `max`. */
  creating: number
  /** When the last count ended, in monotonic milliseconds. */
  countedAt: number
  readonly mutex: Effect.Semaphore
}

/** Counts the sessions of a tenant by their entries. */
const entriesOf = (store: Context.Tag.Service<Store>, tenant: string): Effect.Effect<number, StoreUnavailable> =>
  Effect.gen(function* () {
    let [after, sum] = ["", 0]
    for (;;) {
      const page = yield* pageOf(store, { namespace: namespaceOf(tenant), prefix: "", after, limit: pageEntries })
      sum += page.entries.length
      if (!page.more) return sum
      after = page.entries.at(-1)?.key ?? after
    }
  })

const endCreation = (count: Count, exit: Exit.Exit<unknown, { readonly _tag: string }>): Effect.Effect<void> =>
  Effect.sync(() => {
    count.creating--
    if (Exit.isSuccess(exit) || exit.cause._tag !== "Fail") return
    // If the outcome is unknown, the next count determines it.
    if (exit.cause.error._tag !== "StoreUnavailable") count.max = (count.max ?? 1) - 1
  })

/** The number of sessions of each tenant, which has a limit. Sessions are counted by their entries in the store. */
export class Quota {
  /** By tenant, the least recently used first. */
  private readonly counts = new Map<string, Count>()

  constructor(
    private readonly store: Context.Tag.Service<Store>,
    private readonly limit: number,
    /** Monotonic milliseconds. */
    private readonly now: () => number
  ) {}

  /**
   * Runs the creation of a session, which counts from its start. Fails if the tenant has reached the limit, including
   * concurrent creations.
   */
  creating<A, E extends { readonly _tag: string }>(
    tenant: string,
    creation: Effect.Effect<A, E>
  ): Effect.Effect<A, E | SessionTooLarge | StoreUnavailable> {
    return Effect.suspend(() => {
      const count = this.countOf(tenant)
      const counted = Effect.acquireUseRelease(
        this.add(count),
        () => creation,
        (_, exit) => endCreation(count, exit)
      )
      return this.isDue(count) ? Effect.zipRight(this.recount(tenant, count), counted) : counted
    })
  }

  /** Runs the deletion of a session, which returns whether there was one. */
  deleting<E>(tenant: string, deletion: Effect.Effect<boolean, E>): Effect.Effect<void, E> {
    return Effect.suspend(() => {
      const count = this.countOf(tenant)
      const { countedAt } = count
      return Effect.map(deletion, isDeleted => {
        // A count that ended in the meantime may have left out the session already.
        if (isDeleted && count.countedAt === countedAt && count.max !== undefined) count.max--
      })
    })
  }

  private countOf(tenant: string): Count {
    const { counts } = this
    const countedAt = Number.NEGATIVE_INFINITY
    const none = { max: undefined, creating: 0, countedAt, mutex: Effect.unsafeMakeSemaphore(1) }
    const count: Count = counts.get(tenant) ?? none
    counts.delete(tenant)
    counts.set(tenant, count)
    if (counts.size > maxTenants) counts.delete(counts.keys().next().value!)
    return count
  }

  private isDue({ countedAt, max }: Count): boolean {
    return max === undefined || (max >= this.limit && this.now() - countedAt >= recountAfter)
  }

  /** Counts the sessions, unless another call has done so in the meantime. */
  private recount(tenant: string, count: Count): Effect.Effect<void, StoreUnavailable> {
    const work = Effect.map(entriesOf(this.store, tenant), counted => {
      count.countedAt = this.now()
      // A creation in progress may have been counted twice. Then the bound is too high until the next count.
      count.max = counted + count.creating
    })
    return count.mutex.withPermits(1)(Effect.suspend(() => (this.isDue(count) ? work : Effect.void)))
  }

  /** Adds one or fails. The check and the addition are atomic. */
  private add(count: Count): Effect.Effect<void, SessionTooLarge> {
    return Effect.suspend(() => {
      const { max = 0 } = count
      if (max >= this.limit) {
        return new SessionTooLarge({ message: `The tenant has ${max} sessions; the limit is ${this.limit}` })
      }
      count.max = max + 1
      count.creating++
      return Effect.void
    })
  }
}
