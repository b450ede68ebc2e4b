/**
 * Messages between a database and its writer, in one thread or between two.
 */
import type { UnavailableCause } from "./DatabaseError.ts"

/** Background work of a database, in portions of one transaction each. */
export type Task = "expire" | "trim"

/** Times are epoch milliseconds. A limit bounds the work of one transaction. */
export type Request<W> =
  | { readonly kind: "commit"; readonly writes: ReadonlyArray<W>; readonly now: number }
  /** Deletes entries that have expired at `time`, or removes records that are older. */
  | { readonly kind: Task; readonly time: number; readonly limit: number }
  /** Copies the write-ahead log into the database and truncates it, unless readers of old snapshots prevent it. */
  | { readonly kind: "checkpoint" }
  /** Asks whether the database can be written, apart from the room on the disk. */
  | { readonly kind: "probe" }
  /** Commits a transaction that changes no data, and needs of the disk what a small write needs. */
  | { readonly kind: "touch" }
  /** Opens the file that has the database's name now. All readers have been closed. */
  | { readonly kind: "reopen" }
  /** Closes the file. */
  | { readonly kind: "close" }

/** Why one write of a group was not committed. The reason of a defect has its stack. */
export interface WriteFailure {
  readonly _tag: "Failed" | "Defect"
  readonly reason: string
}

/** The request was served. */
export interface Done<O> {
  readonly _tag: "Done"
  /** For a commit, one for each write. */
  readonly outcomes: ReadonlyArray<O | WriteFailure>
  /** For a task, the number of records that it created or removed. */
  readonly count: number
  /** The newest sequence number; 0 if the database has none. */
  readonly lastSeq: number
  /** The size of the write-ahead log. */
  readonly logBytes: number
  /** The file that the writer has open. */
  readonly databaseId: string | undefined
  /** The epoch of the log; `""` if the database has none. */
  readonly epoch: string
}

/** Nothing was done, or the outcome is unknown. */
export interface Unavailable {
  readonly _tag: "Unavailable"
  readonly cause: UnavailableCause
  readonly reason: string
}

/** The answer to a request. */
export type Reply<O> = Done<O> | Unavailable
