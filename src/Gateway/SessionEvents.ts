/**
 * The session database: histories of events, which are never lost or renumbered once a client has seen them. This is
 * the port; each backend has an adapter.
 */
import { Context, type Duration, type Effect, type Option, Schema } from "effect"
import type { StoreBusy, StoreUnavailable } from "../Kv/Store.ts"

/** The history of a session, without its events. */
export interface History {
  /** Changes only if events that clients may have seen were or may have been lost. Their numbers are assigned again. */
  readonly epoch: string
  /** The newest `seq`; 0 without events. */
  readonly headSeq: number
  /** The newest `seq` that is no longer kept; 0 if all are kept. */
  readonly trimmedSeq: number
  /** What is needed to recover the session after a crash; null if there is nothing to recover. */
  readonly recoveryState: string | null
}

/** What a session is doing, as lists show it and select by it. */
export interface Activity {
  /** Whether a turn is open. */
  readonly running: boolean
  /** Whether the agent waits for the answer of a person. */
  readonly waiting: boolean
  /** Whether the last turn or the session has failed. */
  readonly failed: boolean
}

/** A history that was opened, with what a list shows of it. */
export interface Opened extends History {
  readonly activity: Activity
  /** When the newest event was received, in epoch milliseconds; null without events. */
  readonly lastEventAt: number | null
}

/** The order of sessions by activity: when one was last active in epoch milliseconds, then its name. */
export interface ActivePosition {
  readonly at: number
  /** `<tenant>/<id>`. */
  readonly session: string
}

/** Sessions of one tenant in the order of their activity. */
export interface ActiveQuery {
  readonly tenant: string
  readonly limit: number
  /** Those before a position, the last active first, or those after it, the last active last. */
  readonly from: { readonly before: ActivePosition } | { readonly after: ActivePosition }
  /** Only sessions with this activity. */
  readonly filter: Partial<Activity>
}

/** The number of sessions of a tenant with the same activity. */
export interface ActivityCount extends Activity {
  readonly tenant: string
  readonly count: number
}

/**
 * What a session's instances are created with, except its secrets. Each part is JSON text, or null if the session has
 * none. It is not in the session's record, which every reader of the key-value store can see.
 */
export interface LaunchConfiguration {
  readonly environment: string | null
  readonly deployment: string | null
}

/** What a list shows of a session in addition to its record. */
export interface Summary extends Activity {
  /** The newest `seq`; null without a history. */
  readonly headSeq: number | null
  /** See {@link Opened}. If the event is no longer kept, when the session was last active. */
  readonly lastEventAt: number | null
  /** Which parts of its launch configuration are stored. */
  readonly hasEnvironment: boolean
  readonly hasDeployment: boolean
}

/** An event as it is sent to clients. */
export interface StoredEvent {
  readonly seq: number
  /** The whole frame as JSON text. */
  readonly text: string
}

/** Events and their history, read in one snapshot. */
export interface EventPage {
  readonly events: ReadonlyArray<StoredEvent>
  readonly history: History
}

/** The receipt of a request with a client's id, which is accepted once. */
export interface Receipt {
  /** Unique in the session. */
  readonly id: string
  /** A digest of the request's content. */
  readonly digest: string
  /** The turn that a message started; null for other requests. */
  readonly turnId: string | null
}

/**
 * A checkpoint of the fold of a history: the conversation up to `seq` as JSON text. It is only a cache: it may be missing
 * or damaged, or be of an epoch that the history no longer has.
 */
export interface Checkpoint {
  readonly epoch: string
  readonly seq: number
  readonly text: string
}

/** Events to append to a history. */
export interface Append {
  /** `<tenant>/<id>`. */
  readonly session: string
  readonly epoch: string
  /** The `seq` before the first of the events. */
  readonly after: number
  /** Epoch milliseconds. */
  readonly timestamp: number
  /** The frames, which contain their `seq`. Empty to replace the recovery state only. */
  readonly texts: ReadonlyArray<string>
  /** Replaced in the same transaction. */
  readonly recoveryState: string | null
  /**
   * Replaces a receipt with the same id. It is kept as long as the newest event after this append, among the newest
   * `maxReceipts` of the session.
   */
  readonly receipt?: Receipt | undefined
  /** The id of a receipt to remove. */
  readonly revoked?: string | undefined
  /**
   * What the session does from now on, and when it was last active, unless a later time is stored: the time of the request,
   * in epoch milliseconds. Absent if the append changes neither, as most do.
   */
  readonly activity?: (Activity & { readonly at: number }) | undefined
}

/** A session that has something to recover. */
export interface Unfinished {
  readonly session: string
  readonly recoveryState: string
}

/** The history has another `seq` or epoch than the append expects. Nothing was stored. */
export class OutOfStep extends Schema.TaggedError<OutOfStep>()("OutOfStep", {
  session: Schema.String,
  /** The newest `seq`; null if there is no such history. */
  headSeq: Schema.NullOr(Schema.Int)
}) {}

/**
 * The session belongs to another node that shares the database. Nothing was stored. If that node has stopped, other nodes
 * can open its sessions after its lease has expired.
 */
export class SessionElsewhere extends Schema.TaggedError<SessionElsewhere>()("SessionElsewhere", {
  session: Schema.String
}) {
  override get message(): string {
    return `Session ${this.session} belongs to another node`
  }
}

/** The stored data of one session is damaged. A retry does not help. */
export class SessionUnreadable extends Schema.TaggedError<SessionUnreadable>()("SessionUnreadable", {
  session: Schema.String,
  /** For the log. */
  reason: Schema.String
}) {}

/** The limits of one history; the oldest events are removed first. */
export interface Retention {
  readonly events: number
  /** Bytes of all frames in UTF-8. The newest event is kept even if it is larger. */
  readonly bytes: number
}

/**
 * Durable histories of events, one for each session, dense in `seq` from 1, and launch configurations.
 *
 * Appends of many sessions share transactions and flushes. Numbers continue after older events, or all, were removed.
 *
 * If nodes share a database, a session belongs to the node that opened it until that node releases it, removes it or
 * stops. No other node can change the stored session. Any node can read it.
 */
export class SessionEvents extends Context.Tag("causeway/SessionEvents")<
  SessionEvents,
  {
    /**
     * Creates the history of a new session, which belongs to no node yet. Does nothing if there is one. The session counts as
     * active when its history is created, here and by `open`, or at `activeAt`, in epoch milliseconds.
     */
    readonly create: (
      session: string,
      epoch: string,
      activeAt?: number
    ) => Effect.Effect<void, StoreBusy | StoreUnavailable>
    /**
     * Opens the history of a session, or creates one with the given epoch. A history whose end may have been lost, for
     * example by a fail-over of the database, gets a new epoch. The session belongs to this node from then on.
     */
    readonly open: (
      session: string,
      epoch: string
    ) => Effect.Effect<Opened, SessionElsewhere | StoreBusy | StoreUnavailable>
    /** Lets other nodes open the session. After a failure they can open it when this node has stopped. */
    readonly release: (session: string) => Effect.Effect<void, StoreBusy | StoreUnavailable>
    readonly find: (session: string) => Effect.Effect<Option.Option<History>, StoreUnavailable>
    /** Stores events, all or none. After `StoreUnavailable` the outcome is unknown. */
    readonly append: (
      append: Append
    ) => Effect.Effect<void, OutOfStep | SessionElsewhere | StoreBusy | StoreUnavailable>
    /**
     * Up to `limit` events with a greater `seq` than `after`, in order. Fewer if they are large, but at least one if there
     * is one. None if there is no history.
     */
    readonly read: (
      session: string,
      after: number,
      limit: number
    ) => Effect.Effect<Option.Option<EventPage>, SessionUnreadable | StoreUnavailable>
    readonly receipt: (session: string, id: string) => Effect.Effect<Option.Option<Receipt>, StoreUnavailable>
    /** The checkpoint of a history, of whatever epoch. */
    readonly checkpoint: (session: string) => Effect.Effect<Option.Option<Checkpoint>, StoreUnavailable>
    /**
     * Replaces an older checkpoint, or one of another epoch. Does nothing without a history of this epoch, if the history
     * ends before the checkpoint, or if there is a newer one. Any node may call it.
     */
    readonly saveCheckpoint: (
      session: string,
      checkpoint: Checkpoint
    ) => Effect.Effect<void, StoreBusy | StoreUnavailable>
    /**
     * Gives a history another epoch, because events that clients may have seen were lost from its end. All else is kept.
     * Without a history, creates one. The session belongs to this node from then on.
     */
    readonly renewEpoch: (
      session: string,
      epoch: string
    ) => Effect.Effect<Opened, SessionElsewhere | StoreBusy | StoreUnavailable>
    /** Replaces the launch configuration of a session. */
    readonly configure: (
      session: string,
      configuration: LaunchConfiguration
    ) => Effect.Effect<void, SessionElsewhere | StoreBusy | StoreUnavailable>
    /** The launch configuration of a session; both parts are null if nothing is stored. */
    readonly configuration: (session: string) => Effect.Effect<LaunchConfiguration, StoreUnavailable>
    /** The summaries of sessions, in their order; null for a session whose data cannot be read. */
    readonly summaries: (
      sessions: ReadonlyArray<string>
    ) => Effect.Effect<ReadonlyArray<Summary | null>, StoreUnavailable>
    /**
     * The sessions of a tenant that have a history, by their activity. A session that becomes active never moves to an
     * earlier time, whatever the clock says.
     */
    readonly active: (query: ActiveQuery) => Effect.Effect<ReadonlyArray<ActivePosition>, StoreUnavailable>
    /**
     * The numbers of sessions that have a history, by tenant and activity, of one tenant or of all. At most `limit`
     * sessions are counted, and of the others it is not known what they do.
     */
    readonly counts: (limit: number, tenant?: string) => Effect.Effect<ReadonlyArray<ActivityCount>, StoreUnavailable>
    /**
     * Up to `limit` sessions of which a history or a launch configuration is stored, in a constant order. `after` is the
     * last session of the page before; `""` for the first page.
     */
    readonly sessions: (after: string, limit: number) => Effect.Effect<ReadonlyArray<string>, StoreUnavailable>
    /** Removes a history with its events and its checkpoint, and the launch configuration. Idempotent. */
    readonly remove: (session: string) => Effect.Effect<void, SessionElsewhere | StoreBusy | StoreUnavailable>
    /** The sessions to recover that belong to no other node. */
    readonly unfinished: Effect.Effect<ReadonlyArray<Unfinished>, StoreUnavailable>
    /** The sessions to recover whose node has stopped. Empty if nodes share no database. */
    readonly abandoned: Effect.Effect<ReadonlyArray<Unfinished>, StoreUnavailable>
    /** Whether nodes share the database, so that sessions may be abandoned. */
    readonly isShared: boolean
    /**
     * Waits until another node has taken sessions that this node had opened, because this one did not renew its lease in
     * time, and returns them, each once.
     */
    readonly taken: Effect.Effect<ReadonlyArray<string>>
    /** Removes events that are older than an age. Returns how many. */
    readonly trim: (age: Duration.Duration) => Effect.Effect<number, StoreUnavailable>
  }
>() {}

/** A page ends with the event that reaches this number of characters. */
export const pageCharacters = 1024 * 1024

/** The first events, as many as fit into a page. */
export const pageOf = (many: Iterable<StoredEvent>): ReadonlyArray<StoredEvent> => {
  const events: Array<StoredEvent> = []
  let characters = 0
  for (const event of many) {
    events.push(event)
    characters += event.text.length
    if (characters >= pageCharacters) break
  }
  return events
}
