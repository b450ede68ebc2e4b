import { Context, type Effect, type Option, Schema, type Scope, type Stream } from "effect"
import type { EncodedEntry, StoredEntry } from "./Entry.ts"
import type { Committed, Write } from "./Write.ts"

/** The backing store cannot be reached, or cannot guarantee what it holds. */
export class StoreUnavailable extends Schema.TaggedError<StoreUnavailable>()("StoreUnavailable", {
  /** For the log; clients only learn that the store is unavailable. */
  reason: Schema.String,
  /**
   * Whether it is only what was asked for that cannot be read, as it is damaged or the disk fails to deliver it, while
   * other reads may be served.
   */
  isUnreadable: Schema.optionalWith(Schema.Boolean, { default: () => false })
}) {
  override get message(): string {
    return this.reason
  }
}

/**
 * More writes are waiting, or more whole lists being read or counted, than the store takes in; nothing of this one was
 * done.
 */
export class StoreBusy extends Schema.TaggedError<StoreBusy>()("StoreBusy", {
  retryAfterSeconds: Schema.Int
}) {}

/** A precondition of the write does not hold; nothing of it was applied. */
export class PreconditionFailed extends Schema.TaggedError<PreconditionFailed>()("PreconditionFailed", {
  /** Index of the operation in the write. */
  index: Schema.Int,
  /** The version that is there, as if the write had never been tried; `null` when the entry is absent. */
  currentVersion: Schema.NullOr(Schema.Int),
  /** Whether an earlier operation of the write changes the key, so that the precondition was held against that. */
  isChangedBefore: Schema.Boolean
}) {}

/** The idempotency key of a write is taken; nothing of the write was applied. */
export class IdempotencyConflict extends Schema.TaggedError<IdempotencyConflict>()("IdempotencyConflict", {
  /** Whether the write that has the key is still in progress; otherwise it is another write, which was applied. */
  isInProgress: Schema.Boolean
}) {}

/** The entries that were asked for have more bytes together than the caller takes; none was read. */
export class EntriesTooLarge extends Schema.TaggedError<EntriesTooLarge>()("EntriesTooLarge", {
  /** The most bytes that their values may have. */
  limitBytes: Schema.Int
}) {}

/** There is no backup of this store, or none can be made now; nothing is left of it. */
export class BackupRefused extends Schema.TaggedError<BackupRefused>()("BackupRefused", {
  /** Whether stores of this kind have none here, or the disk has no room for the copy. */
  cause: Schema.Literal("Unsupported", "NoRoom"),
  /** For the client: a whole sentence without its full stop. */
  message: Schema.String
}) {}

/** A copy of the whole store as it was at one moment: a SQLite database. */
export interface StoreBackup {
  readonly bytes: number
  /** SHA-256 of its bytes in hexadecimal digits. */
  readonly sha256: string
  /** The last change that it has, and the epoch of its log. */
  readonly lastSeq: number
  readonly epoch: string
  /** Its bytes in chunks of limited size, each read when it is asked for. */
  readonly content: Stream.Stream<Uint8Array, StoreUnavailable>
}

/** The turn to make a backup: nobody else makes one until its scope closes. */
export interface BackupTurn {
  /** Makes a copy of the whole store, which is complete when the effect succeeds and is removed when the scope closes. */
  readonly copy: Effect.Effect<StoreBackup, BackupRefused | StoreUnavailable, Scope.Scope>
}

/** What addresses an entry. */
export interface Address {
  readonly namespace: string
  readonly key: string
}

/** Entries that were read from one snapshot, one for each address, in order. */
export interface EntriesRead {
  /** `undefined` where there is no entry. */
  readonly entries: ReadonlyArray<EncodedEntry | undefined>
  /** The log position of the snapshot, and the epoch of the log. */
  readonly lastSeq: number
  readonly epoch: string
}

/**
 * Which entries a list takes: those of a namespace whose key starts with `prefix`, literally, and is within the bounds.
 */
export interface Selection {
  readonly namespace: string
  readonly prefix: string
  /** The least key, whether or not there is an entry of it; no bound where it is `""`. */
  readonly start?: string
  /** The key before which all are; no bound where it is `""`. */
  readonly end?: string
}

/** What a list shows, and in which order. */
export interface WholeListQuery extends Selection {
  /** From the last key to the first; a key comes after another one then where it is the lesser. */
  readonly isDescending?: boolean
  /** Entries come without their values. */
  readonly keysOnly?: boolean
  /** Whether the list tells how many entries the selection has. */
  readonly isCounted?: boolean
}

/** Which part of a list a page is. */
export interface ListQuery extends WholeListQuery {
  readonly after: string
  readonly limit: number
}

/** A part of a list, in byte order of the UTF-8 key, ascending unless the query says otherwise. */
export interface ListPage {
  readonly entries: ReadonlyArray<EncodedEntry>
  /** The log position of the snapshot that the page was read from. */
  readonly lastSeq: number
  /** The epoch of the change log, in the same snapshot; see `ChangePage`. */
  readonly epoch: string
  /** Whether entries follow after the last one here. */
  readonly more: boolean
  /** Where the query asks for it, how many entries the selection has, on whatever page. */
  readonly count?: number
}

/** Which namespaces are listed: those that start with `prefix`, literally, and come after `after`. */
export interface NamespaceQuery {
  readonly prefix: string
  readonly after: string
  readonly limit: number
  /** Only those of this tenant; `""` for all. */
  readonly tenant: string
  /** Only those that belong to no tenant: none where `tenant` is one. */
  readonly isWithoutTenant?: boolean
}

/** A namespace that has entries. */
export interface NamespaceCount {
  readonly namespace: string
  readonly count: number
}

/** Namespaces in byte order of their UTF-8. */
export interface NamespacePage {
  readonly namespaces: ReadonlyArray<NamespaceCount>
  /** The log position of the snapshot that the page was read from, and the epoch of the log. */
  readonly lastSeq: number
  readonly epoch: string
  /** Whether namespaces follow after the last one here. */
  readonly more: boolean
}

/** Which tenants are listed: those whose ids start with `prefix`, literally, and come after `after` if it is given. */
export interface TenantQuery {
  readonly prefix: string
  readonly after?: string
  readonly limit: number
  /** Only this tenant; `""` for all. */
  readonly tenant: string
}

/** A tenant that has entries, or `""` for all namespaces that belong to none. */
export interface TenantCount {
  readonly tenant: string
  /** How many namespaces it has, and how many entries these have together. */
  readonly namespaces: number
  readonly entries: number
}

/** Tenants in byte order of their UTF-8. */
export interface TenantPage {
  readonly tenants: ReadonlyArray<TenantCount>
  /** As on a page of namespaces. */
  readonly lastSeq: number
  readonly epoch: string
  readonly more: boolean
}

/** A whole list, read from one snapshot in portions. */
export interface ListStream {
  readonly lastSeq: number
  readonly epoch: string
  /** As on a page. */
  readonly count?: number
  /** Entries in byte order of the UTF-8 key, or its reverse, in portions of bounded size. */
  readonly portions: Stream.Stream<ReadonlyArray<EncodedEntry>, StoreUnavailable>
}

/** Entries that have expired and are still stored, of which at most so many are taken from the counts of namespaces. */
export const maxDue = 10_000

/** A page of entries or of changes ends after the value with which it comes to this many bytes. */
export const pageBytes = 4 * 1024 * 1024

/**
 * Versioned JSON values addressed by namespace and key.
 *
 * An entry and its change record commit together: `Store` and `ChangeLog` are two views of one thing. Names and values
 * are taken as valid; the transport checks them (`Operations`). Each member may be replaced by itself,
 * as in `{ ...store, get }`. A backend makes its effects by `Direct` where it can, so that they run without a fiber.
 */
export class Store extends Context.Tag("causeway/Store")<
  Store,
  {
    /** The entry, unless it is absent or past its `expiresAt`. */
    readonly get: (namespace: string, key: string) => Effect.Effect<Option.Option<StoredEntry>, StoreUnavailable>
    /**
     * Several entries from one snapshot. Values may have at most `maxBytes` of UTF-8 together; one that is asked for
     * twice counts twice. With `keysOnly` entries come without their values, which count nothing then.
     */
    readonly getMany: (
      addresses: ReadonlyArray<Address>,
      maxBytes: number,
      keysOnly?: boolean
    ) => Effect.Effect<EntriesRead, StoreUnavailable | EntriesTooLarge>
    /**
     * Up to `limit` entries whose key comes after `after` (exclusive; `""` for the start). A page ends early
     * where its values come to several MiB, and then says `more`. To count many entries takes a snapshot, as a whole list
     * does; only a query that counts fails with `StoreBusy`.
     */
    readonly list: (query: ListQuery) => Effect.Effect<ListPage, StoreUnavailable | StoreBusy>
    /** All entries, from one snapshot that is held until the scope closes. */
    readonly listAll: (query: WholeListQuery) => Effect.Effect<ListStream, StoreUnavailable | StoreBusy, Scope.Scope>
    /**
     * Up to `limit` namespaces with the numbers of their entries, which writes keep: they are not counted. Where more
     * than {@link maxDue} entries have expired and are still stored, the others among them are counted as present.
     */
    readonly namespaces: (query: NamespaceQuery) => Effect.Effect<NamespacePage, StoreUnavailable>
    /**
     * Up to `limit` tenants with the numbers of their namespaces and entries, which writes keep as those of namespaces.
     */
    readonly tenants: (query: TenantQuery) => Effect.Effect<TenantPage, StoreUnavailable>
    /**
     * Applies a write atomically. Success means that it is durable, as the backend understands it.
     * `StoreUnavailable` leaves open whether it was applied. Interruption withdraws a write that has not begun.
     *
     * A write with an idempotency key is remembered for a day if it is applied, within `Limits.idempotencyBytes`, beyond
     * which the tenants that have the most lose their oldest ones (`IdempotencyShares`). Repeated with the same digest
     * it has its results again; that is decided before its preconditions. Only such a write fails with
     * `IdempotencyConflict`.
     */
    readonly commit: (
      write: Write
    ) => Effect.Effect<Committed, PreconditionFailed | IdempotencyConflict | StoreBusy | StoreUnavailable>
    /**
     * Takes the turn to make a backup, where one can be made as far as that is known before. One is made at a time:
     * another one is `StoreBusy` until the scope of that has closed.
     */
    readonly backup: Effect.Effect<BackupTurn, BackupRefused | StoreBusy | StoreUnavailable, Scope.Scope>
    /** The time by which entries expire, in epoch milliseconds. Most stores have that of Effect's clock. */
    readonly now: () => number
    /** Whether the store answers, found out within one second. */
    readonly ready: Effect.Effect<boolean>
  }
>() {}
