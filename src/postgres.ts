/**
 * The store in a PostgreSQL database that several processes share: entries, the change log, and the histories of the
 * gateway's sessions.
 */
import { Duration, Layer, Option, type Redacted } from "effect"
import type { Retention, SessionEvents as SessionEventsPort } from "./Gateway/SessionEvents.ts"
import type { ChangeLog } from "./Kv/ChangeLog.ts"
import type { Store } from "./Kv/Store.ts"
import * as SessionEvents from "./Storage/Postgres/SessionEvents.ts"
import * as Postgres from "./Storage/Postgres.ts"

export { StoreRefused } from "./Storage/Postgres.ts"

export interface PostgresOptions {
  /** The address of the database, or of a pooler before it. */
  readonly url: Redacted.Redacted
  /** The address of the database itself, where `url` is that of a pooler. */
  readonly directUrl?: Redacted.Redacted | undefined
  /** Most connections for reads; 10 by default. There are up to 8 more, and one for each whole list. */
  readonly connections?: number
  /** How much of each session's history is kept. */
  readonly history?: Retention
  /** How long this process keeps its sessions without an answer of the database; 10 seconds by default. */
  readonly lease?: Duration.DurationInput
  /**
   * A directory of this process alone, which remembers its id: the next run there takes the sessions of this one over at
   * once, and not when their lease is over.
   */
  readonly directory?: string
}

const defaultConnections = 10

/**
 * A database with all that is kept in it. The layer is there before the database is, and it fails only with what it can
 * never use.
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
