/**
 * The store in a PostgreSQL database that several processes share: entries, the change log, and the histories of the
 * gateway's sessions.
 */
import { Duration, Layer, Option, type Redacted } from "effect"
import type { Retention, SessionEvents as SessionEventsPort } from "../Gateway/SessionEvents.ts"
import type { ChangeLog } from "../Kv/ChangeLog.ts"
import type { Store } from "../Kv/Store.ts"
import * as SessionEvents from "../Storage/Postgres/SessionEvents.ts"
import * as Postgres from "../Storage/Postgres.ts"

export { StoreRefused } from "../Storage/Postgres.ts"

/** The database, and the settings of this process. */
export interface PostgresOptions {
  /**
   * The address of the database, or of a pooler in front of it:
   * `postgres://<user>:<password>@<host>:<port>/<database>`.
   */
  readonly url: Redacted.Redacted
  /** The address of the database itself, if `url` is that of a pooler. */
  readonly directUrl?: Redacted.Redacted | undefined
  /**
   * Maximum number of connections for reads; 10 by default. The store uses up to 7 more, and one for each whole list.
   */
  readonly connections?: number
  /** How much of each session's history is kept. */
  readonly history?: Retention
  /** How long this process keeps its sessions without an answer of the database; 10 seconds by default. */
  readonly lease?: Duration.DurationInput
  /**
   * A directory of this process alone, in which it stores its id: the next run there takes over the sessions of this
   * one at once, and not after their lease has expired.
   */
  readonly directory?: string
}

const defaultConnections = 10

/**
 * A store in a PostgreSQL database, with the histories of sessions. The layer is built also while the database is
 * unreachable, and fails only if it can never use the database.
 */
export const postgres = ({
  connections = defaultConnections,
  directory,
  directUrl,
  history,
  lease = SessionEvents.defaultLease,
  url
}: PostgresOptions): Layer.Layer<Store | ChangeLog | SessionEventsPort, Postgres.StoreRefused> =>
  SessionEvents.layer({
    lease: Duration.decode(lease),
    ...(history === undefined ? {} : { retention: history }),
    ...(directory === undefined ? {} : { directory })
  }).pipe(Layer.provideMerge(Postgres.layer({ url, directUrl: Option.fromNullable(directUrl), connections })))
