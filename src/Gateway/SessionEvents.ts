/**
 * The session database: the events of sessions, kept so that what a client has seen is never lost or renumbered. This is the port; each
 * backend has an adapter.
 */
import { Context, type Duration, type Effect, type Option, Schema } from "effect"
import type { StoreBusy, StoreUnavailable } from "../Kv/Store.ts"

/** Where the history of a session stands. */
export interface History {
  /** Names this life of the history; another one begins only when a history was lost. */
  readonly epoch: string
  /** The newest `seq`; 0 where there was no event yet. */
  readonly headSeq: number
  /** The newest `seq` that is no longer kept; 0 where all are. */
  readonly trimmedSeq: number
  /** What the session's keeper needs to go on after a crash; null where nothing is left to do. */
  readonly bookmark: string | null
}

/**
 * What a session's instances are made from beside its secrets, as JSON text; null where the session has none. It is no
 * part of the session's record, which whoever may read the key-value store can read.
 */
export interface LaunchConfiguration {
  readonly environment: string | null
  readonly deployment: string | null
}

/** What lists tell of a session beside its record. */
export interface Summary {
  /** The newest `seq`; null where there is no history. */
  readonly headSeq: number | null
  /** Which parts of its launch configuration are kept. */
  readonly hasEnvironment: boolean
  readonly hasDeployment: boolean
}

/** An event as it travels to clients. */
export interface StoredEvent {
  readonly seq: number
  /** The whole frame as JSON text. */
  readonly text: string
}

/** A part of a history, read in one snapshot with where that stands. */
export interface EventPage {
  readonly events: ReadonlyArray<StoredEvent>
  readonly history: History
}

/** What a client has said under an id of its own, so that it is not taken twice. */
export interface Receipt {
  /** The client's id, unique in the session. */
  readonly id: string
  /** A digest of what was said. */
  readonly digest: string
  /** The turn that a message began; null for what begins none. */
  readonly turnId: string | null
}

/** Events to store behind those that are there. */
export interface Append {
  /** Names the session, whichever the tenant: `<tenant>/<id>`. */
  readonly session: string
  readonly epoch: string
  /** The newest `seq` before; the events get those that follow. */
  readonly after: number
  /** Epoch milliseconds. */
  readonly timestamp: number
  /** The frames, which hold their `seq` already. There may be none, to replace the bookmark alone. */
  readonly texts: ReadonlyArray<string>
  /** Replaces the bookmark in the same transaction. */
  readonly bookmark: string | null
  /**
   * Kept in place of one of the same id, for as long as the event is kept that is the newest after this append, but
   * among the newest `mostReceipts` of the session.
   */
  readonly receipt?: Receipt | undefined
  /** The id of a receipt to remove. */
  readonly revoked?: string | undefined
}

/** A session whose keeper did not come to an end with it. */
export interface Unfinished {
  readonly session: string
  readonly bookmark: string
}

/** The history is not where the append believes it to be; nothing was stored. */
export class OutOfStep extends Schema.TaggedError<OutOfStep>()("OutOfStep", {
  session: Schema.String,
  /** The newest `seq` that is there; null where there is no such history. */
  headSeq: Schema.NullOr(Schema.Int)
}) {}

/** What is stored of a session cannot be read, and will not be by itself; other sessions may be well. */
export class SessionUnreadable extends Schema.TaggedError<SessionUnreadable>()("SessionUnreadable", {
  session: Schema.String,
  /** For the log. */
  reason: Schema.String
}) {}

/** What bounds the history of one session; the oldest events go first. */
export interface Retention {
  readonly events: number
  /** Bytes of UTF-8 of all frames together. The newest event is kept even where it is larger. */
  readonly bytes: number
}

/**
 * Durable histories of events, one for each session, dense in `seq` from 1, and launch configurations beside them.
 *
 * Appends of many sessions share transactions and flushes. A history keeps as many events as its {@link Retention}
 * allows; its numbers go on when older events, or all, have been removed.
 */
export class SessionEvents extends Context.Tag("causeway/SessionEvents")<
  SessionEvents,
  {
    /** The history of a session; one that is not there begins with the epoch given. */
    readonly open: (session: string, epoch: string) => Effect.Effect<History, StoreBusy | StoreUnavailable>
    /** The history of a session, where there is one. */
    readonly find: (session: string) => Effect.Effect<Option.Option<History>, StoreUnavailable>
    /** Stores events, all or none. `StoreUnavailable` leaves open whether they were. */
    readonly append: (append: Append) => Effect.Effect<void, OutOfStep | StoreBusy | StoreUnavailable>
    /**
     * Up to `limit` events with a greater `seq` than `after`, in order, fewer where they are large and at least one
     * where there is one; nothing where there is no history.
     */
    readonly read: (
      session: string,
      after: number,
      limit: number
    ) => Effect.Effect<Option.Option<EventPage>, SessionUnreadable | StoreUnavailable>
    /** The receipt of what a client has said under an id, where it is kept. */
    readonly receipt: (session: string, id: string) => Effect.Effect<Option.Option<Receipt>, StoreUnavailable>
    /** Begins a history with the epoch given, in place of any that is there. */
    readonly restart: (session: string, epoch: string) => Effect.Effect<History, StoreBusy | StoreUnavailable>
    /** Keeps a launch configuration in place of the one that the session had. */
    readonly configure: (
      session: string,
      configuration: LaunchConfiguration
    ) => Effect.Effect<void, StoreBusy | StoreUnavailable>
    /** The launch configuration of a session; both parts are null where nothing is kept. */
    readonly configuration: (session: string) => Effect.Effect<LaunchConfiguration, StoreUnavailable>
    /** What is known of each session, in the order of the names; null where what is stored of one cannot be read. */
    readonly summaries: (
      sessions: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlyArray<Summary | null>, StoreUnavailable>
    /** Removes a history with its events, and the launch configuration. What is not there is as good as removed. */
    readonly remove: (session: string) => Effect.Effect<void, StoreBusy | StoreUnavailable>
    /** Histories that have a bookmark. */
    readonly unfinished: Effect.Effect<ReadonlyArray<Unfinished>, StoreUnavailable>
    /** Removes events that are older than an age, and tells how many. */
    readonly trim: (age: Duration.Duration) => Effect.Effect<number, StoreUnavailable>
  }
>() {}

/** A page ends with the event with which it comes to this many characters. */
export const pageCharacters = 1024 * 1024
