import { Context, Effect, type Exit, type Option, Schema, type Scope, type Stream } from "effect"
import type { StoredEntry } from "./Entry.ts"
import type { Committed, Write } from "./Write.ts"

/** The backing store cannot be reached, or cannot vouch for what it holds. */
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

/** More writes are waiting, or more whole lists being read, than the store takes in; nothing of this one was done. */
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

/** Which entries a list takes: those of a namespace whose key starts with `prefix`, literally. */
export interface Selection {
  readonly namespace: string
  readonly prefix: string
}

/** Which part of a list a page is. */
export interface ListQuery extends Selection {
  readonly after: string
  readonly limit: number
  /** From the last key to the first; a key comes after another one then where it is the lesser. */
  readonly isDescending?: boolean
}

/** A part of a list, in byte order of the UTF-8 key, ascending unless the query says otherwise. */
export interface ListPage {
  readonly entries: ReadonlyArray<StoredEntry>
  /** The log position that the page was read at, in the same snapshot. */
  readonly lastSeq: number
  /** Whether entries follow after the last one here. */
  readonly more: boolean
}

/** A part of a list as the JSON that clients get of its entries; see `ListPage`. */
export interface PrintedList {
  readonly entries: ReadonlyArray<string>
  readonly lastSeq: number
  readonly more: boolean
  /** The key of the last entry; `""` where there is none. */
  readonly lastKey: string
}

/** A whole list read from one snapshot, bit by bit. */
export interface ListStream {
  readonly lastSeq: number
  /** Entries in byte order of the UTF-8 key, in portions of bounded size. */
  readonly portions: Stream.Stream<ReadonlyArray<StoredEntry>, StoreUnavailable>
}

type CommitError = PreconditionFailed | StoreBusy | StoreUnavailable

/**
 * Commits a write for a caller without a fiber, and calls back once with what became of it, which may be before it
 * returns. The function returned is for a caller that leaves: it is not called back, and its write is taken back where
 * an interruption of the commit would do so. What the callback throws is a bug of the caller.
 */
export type UnsafeCommit = (write: Write, complete: (exit: Exit.Exit<Committed, CommitError>) => void) => () => void

/**
 * A store's commit. It carries its way without a fiber itself, so that whoever puts another function in its place, to
 * do more than commit, is not passed by.
 */
export interface Commit {
  (write: Write): Effect.Effect<Committed, CommitError>
  readonly unsafe?: UnsafeCommit
}

/** The commit of a store that needs no fiber for it. */
export const commitOf = (unsafe: UnsafeCommit): Commit =>
  Object.assign((write: Write) => Effect.async<Committed, CommitError>(resume => Effect.sync(unsafe(write, resume))), {
    unsafe
  })

/**
 * Versioned JSON values addressed by namespace and key.
 *
 * An entry and its change record commit together, so that `Store` and `ChangeLog` are two views of one thing.
 * Names and values are taken as valid: whoever stands at the rim checks them (`Names`, `Json`, `Limits`).
 */
export class Store extends Context.Tag("causeway/Store")<
  Store,
  {
    /** The entry, unless it is absent or past its `expiresAt`. */
    readonly get: (namespace: string, key: string) => Effect.Effect<Option.Option<StoredEntry>, StoreUnavailable>
    /**
     * `get` at a time (epoch milliseconds), for callers that cannot wait; nothing where only `get` can tell, failures
     * included. A backend that always has to wait leaves it out, and so does whoever wraps a store and changes its `get`.
     */
    readonly unsafeGet?: (namespace: string, key: string, now: number) => Option.Option<StoredEntry> | undefined
    /**
     * Up to `limit` entries whose key comes after `after` (exclusive; `""` for the start). A page ends early
     * where its values come to several MiB, and then says `more`.
     */
    readonly list: (query: ListQuery) => Effect.Effect<ListPage, StoreUnavailable>
    /**
     * The same as `list`, printed by the store itself where that is quicker. Whoever wraps a store and changes what it
     * lists leaves it out.
     */
    readonly listPrinted?: (
      selection: Selection & { readonly after: string; readonly limit: number }
    ) => Effect.Effect<PrintedList, StoreUnavailable>
    /** All entries, from one snapshot that is held until the scope closes. */
    readonly listAll: (selection: Selection) => Effect.Effect<ListStream, StoreUnavailable | StoreBusy, Scope.Scope>
    /**
     * Applies a write atomically. Success means that it is durable, as the backend understands it.
     * `StoreUnavailable` leaves open whether it was applied.
     */
    readonly commit: Commit
    /** Whether the store answers, found out within one second. */
    readonly ready: Effect.Effect<boolean>
  }
>() {}
