/** What a database and its writer send each other, in one thread or across two. */
import type { UnavailableCause } from "./DatabaseError.ts"

/** Background work that a database may have, in portions of one transaction each. */
export type Task = "expire" | "trim"

/** Times are epoch milliseconds; a limit bounds what one transaction does. */
export type Request<W> =
  | { readonly kind: "commit"; readonly writes: ReadonlyArray<W>; readonly now: number }
  /** Deletes what had expired at a time, or removes what is older than it. */
  | { readonly kind: Task; readonly time: number; readonly limit: number }
  /** Copies the write-ahead log into the database and truncates it, unless readers of old snapshots prevent it. */
  | { readonly kind: "checkpoint" }
  /** Asks whether a write could be committed. */
  | { readonly kind: "probe" }
  /** Opens the file that has the database's name now; all readers have been closed. */
  | { readonly kind: "reopen" }
  /** Closes the file. */
  | { readonly kind: "close" }

/** Why one write of a group was not committed; the reason of a defect has its stack. */
export interface WriteFailure {
  readonly _tag: "Failed" | "Defect"
  readonly reason: string
}

export interface Done<O> {
  readonly _tag: "Done"
  /** For a commit, one for each write. */
  readonly outcomes: ReadonlyArray<O | WriteFailure>
  /** For a task, how many records it made or removed. */
  readonly count: number
  /** The newest sequence number; 0 where the database has none. */
  readonly lastSeq: number
  /** The size of the write-ahead log. */
  readonly logBytes: number
  /** Which file the writer has open. */
  readonly databaseId: string | undefined
}

/** Nothing was done, or it is not known whether it was. */
export interface Unavailable {
  readonly _tag: "Unavailable"
  readonly cause: UnavailableCause
  readonly reason: string
}

export type Reply<O> = Done<O> | Unavailable
