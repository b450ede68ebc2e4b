/** What the stores of a node share. */
import { Context } from "effect"
import type { AtNow } from "./Database/DatabaseClock.ts"
import type { Pool } from "./Database/Pool.ts"
import type { SessionNotifications } from "./SessionEvents/SessionNotifications.ts"

/**
 * The connections of a node to the database. Statements fail until the database is open and its schema is up to date.
 */
export class Database extends Context.Tag("causeway/PostgresDatabase")<
  Database,
  {
    readonly reads: Pool
    readonly writes: Pool
    readonly atNow: AtNow
    /** Returns the server's time in its latest answer, in epoch milliseconds. */
    readonly lastServerTime: () => number
    /** The notifications by which nodes learn of changes of sessions. */
    readonly sessions: SessionNotifications
  }
>() {}
