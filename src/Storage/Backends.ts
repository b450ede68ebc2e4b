/**
 * The storage backends of one process: entries, the change log, and the histories of sessions. No backend here imports
 * the PostgreSQL client.
 */
import { Layer } from "effect"
import * as EventsInMemory from "../Gateway/SessionEvents/Memory.ts"
import type { Retention, SessionEvents } from "../Gateway/SessionEvents.ts"
import type { ChangeLog } from "../Kv/ChangeLog.ts"
import type { Store } from "../Kv/Store.ts"
import * as Memory from "./Memory.ts"
import * as SessionEventsInSqlite from "./Sqlite/SessionEvents.ts"
import * as Sqlite from "./Sqlite.ts"

export type Backend = Store | ChangeLog | SessionEvents

/** The directory of SQLite's files, and how much of each session's history is kept. */
export interface SqliteOptions extends Sqlite.Options {
  readonly history?: Retention
}

/**
 * SQLite in a directory, which one process owns. The directory is created when it is missing. It has `kv.db` with
 * entries and the change log, and `sessions.db` with the histories of sessions.
 */
export const sqlite = (options: string | SqliteOptions): Layer.Layer<Backend, Sqlite.StoreRefused> => {
  const { history, ...database } = typeof options === "string" ? { directory: options } : options
  return SessionEventsInSqlite.layer({ ...database, ...(history === undefined ? {} : { retention: history }) }).pipe(
    // The store is opened first, so that the refusal of a directory in use names `kv.lock`.
    Layer.provideMerge(Sqlite.layer(database))
  )
}

/** Everything in memory, for tests. It is lost with the process. */
export const memory: Layer.Layer<Backend> = Layer.merge(Memory.layer, EventsInMemory.layer())
