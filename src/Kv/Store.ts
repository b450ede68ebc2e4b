/** The port to the entries, and why a request to them fails. */
import { Context, type Effect, type Option, Schema, type Scope, type Stream } from "effect"
import { MiB } from "../base/Bytes.ts"
import type { NamespaceCount, TenantCount } from "../Client/Model.ts"
import type { Address, EncodedEntry, StoredEntry } from "./Entry.ts"
import type { Committed, Write } from "./Write.ts"

export type { NamespaceCount, TenantCount } from "../Client/Model.ts"
export type { Address } from "./Entry.ts"

/** The backing store is unreachable, or cannot guarantee its content. */
export class StoreUnavailable extends Schema.TaggedError<StoreUnavailable>()("StoreUnavailable", {
  /** For the log. Clients only learn that the store is unavailable. */
  reason: Schema.String,
  /**
   * Whether only the requested data is unreadable, because it is damaged or the disk fails. Other reads may succeed.
   */
  isUnreadable: Schema.optionalWith(Schema.Boolean, { default: () => false })
}) {
  override get message(): string {
    return this.reason
  }
}

/** Too many writes are waiting, or too many whole lists are being read or counted. Nothing of this request was done. */
export class StoreBusy extends Schema.TaggedError<StoreBusy>()("StoreBusy", {
  retryAfterSeconds: Schema.Int
}) {}

/** A precondition of the write does not hold. Nothing of the write was applied. */
export class PreconditionFailed extends Schema.TaggedError<PreconditionFailed>()("PreconditionFailed", {
  /** Index of the operation in the write. */
  index: Schema.Int,
  /** The current version, as if the write had never been tried; `null` if the entry is absent. */
  currentVersion: Schema.NullOr(Schema.Int),
  /**
   * Whether an earlier operation of the write changes the key. Then the precondition was checked against that change.
   */
  isChangedBefore: Schema.Boolean
}) {}

/** The idempotency key of a write is in use. Nothing of the write was applied. */
export class IdempotencyConflict extends Schema.TaggedError<IdempotencyConflict>()("IdempotencyConflict", {
  /** Whether the write with the key is still in progress. Otherwise a different write with the key was applied. */
  isInProgress: Schema.Boolean
}) {}

/** The requested entries have more bytes together than the caller accepts. None was read. */
export class EntriesTooLarge extends Schema.TaggedError<EntriesTooLarge>()("EntriesTooLarge", {
  /** The maximum number of bytes of their values. */
  limitBytes: Schema.Int
}) {}

/** The store cannot be backed up. No files remain. */
export class BackupRefused extends Schema.TaggedError<BackupRefused>()("BackupRefused", {
  /** Whether this kind of store has no backups, or the disk has too little room for the copy. */
  cause: Schema.Literal("Unsupported", "NoRoom"),
  /** For the client: a sentence without its full stop. */
  message: Schema.String
}) {}

/** A copy of the whole store from one snapshot: a SQLite database. */
export interface StoreBackup extends OfSnapshot {
  readonly bytes: number
  /** SHA-256 of its bytes in hexadecimal digits. */
  readonly sha256: string
  /** Its bytes in chunks of limited size, read on demand. */
  readonly content: Stream.Stream<Uint8Array, StoreUnavailable>
}

/** The permission to make a backup. No other backup is made until its scope closes. */
export interface BackupTurn {
  /** Makes a copy of the whole store. It is complete when the effect succeeds, and removed when the scope closes. */
  readonly copy: Effect.Effect<StoreBackup, BackupRefused | StoreUnavailable, Scope.Scope>
}

/** What is read from one snapshot has its position of the log, and the epoch of the log; see `ChangePage`. */
interface OfSnapshot {
  readonly lastSeq: number
  readonly epoch: string
}

/** Entries that were read from one snapshot, one for each address, in order; `undefined` for an absent one. */
export interface EntriesRead extends OfSnapshot {
  readonly entries: ReadonlyArray<EncodedEntry | undefined>
}

/** The entries of a list: those of a namespace whose key has the literal prefix `prefix` and is within the bounds. */
export interface Selection {
  readonly namespace: string
  readonly prefix: string
  /** The lowest key, which need not exist; no bound if it is `""`. */
  readonly start?: string
  /** All keys are lower than this one; no bound if it is `""`. */
  readonly end?: string
}

/** The content and the order of a list. */
export interface WholeListQuery extends Selection {
  /** From the last key to the first. A key then comes after another one if it is lower. */
  readonly isDescending?: boolean
  /** Entries come without their values. */
  readonly keysOnly?: boolean
  /** Whether the list has the number of entries of the selection. */
  readonly isCounted?: boolean
}

/** One page of a list. */
export interface ListQuery extends WholeListQuery {
  readonly after: string
  readonly limit: number
}

/** A page of a list, in byte order of the UTF-8 key, ascending unless the query says otherwise. */
export interface ListPage extends OfSnapshot {
  readonly entries: ReadonlyArray<EncodedEntry>
  /** Whether more entries follow. */
  readonly more: boolean
  /** The number of entries of the whole selection, if the query asks for it. */
  readonly count?: number
}

/** The namespaces to list: those that have the literal prefix `prefix` and come after `after`. */
export interface NamespaceQuery {
  readonly prefix: string
  readonly after: string
  readonly limit: number
  /** Only those of this tenant; `""` for all. */
  readonly tenant: string
  /** Only those that belong to no tenant. None if `tenant` is not `""`. */
  readonly isWithoutTenant?: boolean
}

/** Namespaces in byte order of their UTF-8. */
export interface NamespacePage extends OfSnapshot {
  readonly namespaces: ReadonlyArray<NamespaceCount>
  /** Whether more namespaces follow. */
  readonly more: boolean
}

/** The tenants to list: those whose ids have the literal prefix `prefix` and come after `after`, if it is given. */
export interface TenantQuery {
  readonly prefix: string
  readonly after?: string
  readonly limit: number
  /** Only this tenant; `""` for all. */
  readonly tenant: string
}

/** Tenants in byte order of their UTF-8. */
export interface TenantPage extends OfSnapshot {
  readonly tenants: ReadonlyArray<TenantCount>
  readonly more: boolean
}

/** A whole list, read from one snapshot in portions. */
export interface ListStream extends OfSnapshot {
  /** As on a page. */
  readonly count?: number
  /** Entries in byte order of the UTF-8 key, or its reverse, in portions of bounded size. */
  readonly portions: Stream.Stream<ReadonlyArray<EncodedEntry>, StoreUnavailable>
}

/** The maximum number of entries that have expired and are still stored which the counts of namespaces leave out. */
export const maxDue = 10_000

/** A page of entries or of changes ends after the value with which it reaches this many bytes. */
export const pageBytes = 4 * MiB

/**
 * Versioned JSON values addressed by namespace and key.
 *
 * An entry and its change record commit together: `Store` and `ChangeLog` are two views of the same data. Names and
 * values are assumed to be valid; the transport checks them (`Operations`). Each member may be replaced separately, as
 * in `{ ...store, get }`. A backend makes its effects by `Direct` where possible, so that they run without a fiber.
 */
export class Store extends Context.Tag("causeway/Store")<
  Store,
  {
    /** The entry, unless it is absent or past its `expiresAt`. */
    readonly get: (namespace: string, key: string) => Effect.Effect<Option.Option<StoredEntry>, StoreUnavailable>
    /**
     * Several entries from one snapshot. The values may have at most `maxBytes` of UTF-8 together. An entry that is
     * requested twice counts twice. With `keysOnly`, entries come without their values, which do not count.
     */
    readonly getMany: (
      addresses: ReadonlyArray<Address>,
      maxBytes: number,
      keysOnly?: boolean
    ) => Effect.Effect<EntriesRead, StoreUnavailable | EntriesTooLarge>
    /**
     * Up to `limit` entries whose key comes after `after` (exclusive; `""` for the start). A page ends early when its
     * values reach several MiB, and then `more` is true. Counting many entries takes a snapshot, as a whole list does.
     * Only a query that counts fails with `StoreBusy`.
     */
    readonly list: (query: ListQuery) => Effect.Effect<ListPage, StoreUnavailable | StoreBusy>
    /** All entries, from one snapshot that exists until the scope closes. */
    readonly listAll: (query: WholeListQuery) => Effect.Effect<ListStream, StoreUnavailable | StoreBusy, Scope.Scope>
    /**
     * Up to `limit` namespaces with the numbers of their entries. Writes maintain these numbers. If more than {@link
     * maxDue} entries have expired and are still stored, the remaining ones count as present.
     */
    readonly namespaces: (query: NamespaceQuery) => Effect.Effect<NamespacePage, StoreUnavailable>
    /** Up to `limit` tenants with the numbers of their namespaces and entries, which writes maintain, too. */
    readonly tenants: (query: TenantQuery) => Effect.Effect<TenantPage, StoreUnavailable>
    /**
     * Applies a write atomically. Success means that it is durable, as the backend defines it. After `StoreUnavailable`
     * the outcome is unknown. Interruption withdraws a write that has not started.
     *
     * If a write with an idempotency key is applied, its result is stored for a day, within `Limits.idempotencyBytes`.
     * Beyond that the tenants with the most bytes lose their oldest records (`IdempotencyShares`). A repeated write
     * with the same digest returns this result; its preconditions are not checked. Only writes with a key fail with
     * `IdempotencyConflict`.
     */
    readonly commit: (
      write: Write
    ) => Effect.Effect<Committed, PreconditionFailed | IdempotencyConflict | StoreBusy | StoreUnavailable>
    /**
     * Takes the permission to make a backup, if one can be made. One backup is made at a time: until its scope has
     * closed, others fail with `StoreBusy`.
     */
    readonly backup: Effect.Effect<BackupTurn, BackupRefused | StoreBusy | StoreUnavailable, Scope.Scope>
    /** The time by which entries expire, in epoch milliseconds. Most stores use that of Effect's clock. */
    readonly now: () => number
    /** Whether the store answers within one second. */
    readonly ready: Effect.Effect<boolean>
  }
>() {}
