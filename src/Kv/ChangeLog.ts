/** The port to the change log. */
import { Context, type Duration, Effect, Schema } from "effect"
import type { EncodedChange } from "./Change.ts"
import type { StoreUnavailable } from "./Store.ts"

/** Retention has removed records after `after`: list again, and follow from the position of that list. */
export class HistoryTrimmed extends Schema.TaggedError<HistoryTrimmed>()("HistoryTrimmed", {
  /** The highest `seq` that was removed. */
  trimmedSeq: Schema.Int,
  /** The epoch of the log; see {@link ChangePage}. */
  epoch: Schema.String
}) {}

/** The part of the log to read. */
export interface ChangeQuery {
  /** Only records with a greater `seq`. */
  readonly after: number
  /** The maximum number of records. A page ends early when its values reach several MiB. */
  readonly limit: number
  /** Only this tenant's records; `""` for all. */
  readonly tenant: string
  /** Only records of this namespace. */
  readonly namespace?: string | undefined
  /** Only records whose key has this literal prefix. It requires a namespace. */
  readonly prefix?: string | undefined
}

/** Whether a query selects a record after its position. */
export const selects = (query: ChangeQuery, record: Pick<EncodedChange, "tenant" | "namespace" | "key">): boolean => {
  const { namespace, prefix = "", tenant } = query
  if (tenant !== "" && record.tenant !== tenant) return false
  if (namespace === undefined) return true
  // Prefixes are compared in UTF-8, which cannot encode half of a surrogate pair: no key has such a prefix.
  return record.namespace === namespace && record.key.startsWith(prefix) && prefix.isWellFormed()
}

/** Records in ascending `seq`. */
export interface ChangePage {
  readonly changes: ReadonlyArray<EncodedChange>
  /**
   * The last `seq` scanned: pass it as the next `after`. It is greater than the last record's `seq` if the query does
   * not select all records. It is lower than `after` if the log ends before that, as after a restore from a backup.
   */
  readonly lastSeq: number
  /**
   * Identifies the log: 1 to 64 characters of letters, digits, `.`, `_` and `-`, created with the store. A new epoch
   * begins when changes that a reader has seen may be missing or have other numbers, as after a restore from a backup.
   * Only positions of the same epoch can be compared. It is read from the same snapshot as the page.
   */
  readonly epoch: string
  /**
   * Whether no later commit can add to the page: it is full, or more records were present already. A page of a
   * namespace may be complete and empty, because a read scans a limited part of the log.
   */
  readonly isComplete: boolean
}

/**
 * When housekeeping has work, in epoch milliseconds by the clock of this process. The times may be too early, never too
 * late: work that finds nothing to do asks again.
 */
export interface Due {
  /** The earliest expiry of an entry; `null` if none expires. */
  readonly expiresAt: number | null
  /** The timestamp of the oldest record that `trim` may remove; `null` if the newest record is the only one. */
  readonly oldestAt: number | null
}

/**
 * The log of all sets and deletes. `seq` has no gaps. A record becomes visible only after all records with a lower
 * `seq`.
 */
export class ChangeLog extends Context.Tag("causeway/ChangeLog")<
  ChangeLog,
  {
    /**
     * Reads a page. It fails within two seconds if nothing of it arrives. A log whose pages may take longer to arrive
     * calls `onSent` with a function that returns whether a part of the page has arrived, but not all.
     */
    readonly read: (
      query: ChangeQuery,
      onSent?: (isArriving: () => boolean) => void
    ) => Effect.Effect<ChangePage, StoreUnavailable | HistoryTrimmed>
    /**
     * A number that changes before any caller can observe that records were removed, or that the log was replaced. A
     * complete page stays valid until it changes. It fails if a read would.
     */
    readonly history: Effect.Effect<number, StoreUnavailable>
    /** The last `seq`, 0 for an empty log. */
    readonly lastSeq: Effect.Effect<number, StoreUnavailable>
    /**
     * Waits until the log may have grown past `seq`. Returns at once if it has. It never fails: while the store is
     * unavailable it waits. Wake-ups may be spurious, so read again.
     */
    readonly awaitPast: (seq: number) => Effect.Effect<void>
    /**
     * Removes records older than `age`, and their tombstones, but never the newest record. Returns the number of
     * removed records.
     */
    readonly trim: (age: Duration.Duration) => Effect.Effect<number, StoreUnavailable>
    /** Deletes entries whose `expiresAt` has passed, with change records. Returns their number. */
    readonly expire: Effect.Effect<number, StoreUnavailable>
    /**
     * When `expire` and `trim` will next have work, so that housekeeping can sleep until then. The result changes only
     * with the log. A log that does not know returns {@link alwaysDue}.
     */
    readonly due: Effect.Effect<Due, StoreUnavailable>
  }
>() {}

/** For a log that does not know: `expire` runs each second, and `trim` each minute. */
export const alwaysDue: Effect.Effect<Due> = Effect.succeed({ expiresAt: 0, oldestAt: 0 })
