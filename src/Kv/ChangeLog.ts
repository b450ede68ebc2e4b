import { Context, type Duration, Effect, Schema } from "effect"
import type { EncodedChange } from "./Change.ts"
import type { StoreUnavailable } from "./Store.ts"

/** Records after `after` were removed by retention: list again, and follow from the position of that list. */
export class HistoryTrimmed extends Schema.TaggedError<HistoryTrimmed>()("HistoryTrimmed", {
  /** The highest `seq` that was removed. */
  trimmedSeq: Schema.Int,
  /** Which log this is; see {@link ChangePage}. */
  epoch: Schema.String
}) {}

/** Which part of the log a reader wants. */
export interface ChangeQuery {
  /** Only records with a greater `seq`. */
  readonly after: number
  /** At most so many records; fewer come where their values come to several MiB. */
  readonly limit: number
  /** Only this tenant's records; `""` for all. */
  readonly tenant: string
  /** Only records of this namespace. */
  readonly namespace?: string | undefined
  /** Only records whose key starts with this, literally; it takes a namespace. */
  readonly prefix?: string | undefined
}

/** Whether a query selects a record that comes after its position. */
export const selects = (query: ChangeQuery, record: Pick<EncodedChange, "tenant" | "namespace" | "key">): boolean => {
  const { namespace, prefix = "", tenant } = query
  if (tenant !== "" && record.tenant !== tenant) return false
  if (namespace === undefined) return true
  // Half of a surrogate pair has no UTF-8, in which prefixes are compared: no key starts with it.
  return record.namespace === namespace && record.key.startsWith(prefix) && prefix.isWellFormed()
}

/** Records in ascending `seq`. */
export interface ChangePage {
  readonly changes: ReadonlyArray<EncodedChange>
  /**
   * The last `seq` scanned: pass it as the next `after`. It can lie past the last record here where the query does not
   * select all; it lies below `after` where the log ends before that, as after a restore from a backup.
   */
  readonly lastSeq: number
  /**
   * Which log this is: 1 to 64 characters of letters, digits, `.`, `_` and `-`, made with the store. It is another one
   * from the moment on at which changes that a reader has seen may be missing or have other numbers, as after a restore
   * from a backup. Only positions of the same epoch can be compared. It is that of the snapshot that was read.
   */
  readonly epoch: string
  /**
   * Whether no later commit can add to the page: it is full, or more records were there already. A page of a namespace
   * may be complete and empty, as a read scans a limited part of the log.
   */
  readonly isComplete: boolean
}

/**
 * When housekeeping has something to do, in epoch milliseconds by the clock of this process. The times may be earlier
 * than the true ones, never later: work that finds nothing to do asks again.
 */
export interface Due {
  /** The earliest expiry of an entry; `null` where none expires. */
  readonly expiresAt: number | null
  /** The timestamp of the oldest record that `trim` may remove; `null` where there is none beside the newest. */
  readonly oldestAt: number | null
}

/** The log of all sets and deletes. `seq` has no holes, and a record shows only when all smaller ones do. */
export class ChangeLog extends Context.Tag("causeway/ChangeLog")<
  ChangeLog,
  {
    readonly read: (query: ChangeQuery) => Effect.Effect<ChangePage, StoreUnavailable | HistoryTrimmed>
    /**
     * A number that changes before anybody can know that records were removed, or that the log was replaced by
     * another. A complete page that was read stays true for as long as it stays. It fails where a read would.
     */
    readonly history: Effect.Effect<number, StoreUnavailable>
    /** The last `seq`, 0 for an empty log. */
    readonly lastSeq: Effect.Effect<number, StoreUnavailable>
    /**
     * Waits until the log may have grown past `seq`; returns at once where it already has. It never fails: while the
     * store is unavailable it waits. Wake-ups may be spurious, so read again.
     */
    readonly awaitPast: (seq: number) => Effect.Effect<void>
    /**
     * Removes records (and tombstones with them) older than `age`, never the newest record. Returns how many
     * records were removed.
     */
    readonly trim: (age: Duration.Duration) => Effect.Effect<number, StoreUnavailable>
    /** Turns entries past their `expiresAt` into deletes with change records. Returns how many. */
    readonly expire: Effect.Effect<number, StoreUnavailable>
    /**
     * What `expire` and `trim` will have to do next, so that nothing wakes up before. It may grow with the log alone. A
     * log that cannot tell has {@link alwaysDue}.
     */
    readonly due: Effect.Effect<Due, StoreUnavailable>
  }
>() {}

/** For a log that cannot tell: `expire` is run each second, and `trim` each minute. */
export const alwaysDue: Effect.Effect<Due> = Effect.succeed({ expiresAt: 0, oldestAt: 0 })
