import { Context } from "effect"
import type { Pool } from "./Database/Pool.ts"
import type { Readiness } from "./Readiness.ts"
import type { SessionSignals } from "./SessionEvents/SessionSignals.ts"

/** The connections of a node to the database, which is there or will be, with its schema up to date. */
export class Database extends Context.Tag("causeway/PostgresDatabase")<
  Database,
  {
    readonly reads: Pool
    readonly writes: Pool
    readonly atNow: Readiness["atNow"]
    /** The time of the database when it last told it, in epoch milliseconds. */
    readonly lastTold: () => number
    /** How nodes learn of changes of sessions. */
    readonly sessions: SessionSignals
  }
>() {}
