/** What goes between the store and its writer, in one thread or across two. */
import type { Committed, Refused, Write } from "../../../Kv/Write.ts"
import type { Obstacle } from "../Database/FileIdentity.ts"

/** Times are epoch milliseconds; limits bound what one transaction does. */
export type Request =
  | { readonly kind: "commit"; readonly writes: ReadonlyArray<Write>; readonly now: number }
  /** Deletes entries that have run out. */
  | { readonly kind: "expire"; readonly now: number; readonly limit: number }
  /** Removes the oldest records from before a time. */
  | { readonly kind: "trim"; readonly before: number; readonly limit: number }
  /** Copies the write-ahead log into the database and empties it, unless readers of old snapshots hold that up. */
  | { readonly kind: "checkpoint" }
  /** Asks whether a commit could be made. */
  | { readonly kind: "probe" }
  /** Opens the file that now stands in the place of the old one; all readers have been closed. */
  | { readonly kind: "reopen" }
  | Close

/** Lets go of the file. */
export interface Close {
  readonly kind: "close"
}

export type Kind = Request["kind"]

/** What became of one write of a group. */
export type Outcome =
  | { readonly _tag: "Committed"; readonly committed: Committed }
  | Refused
  | { readonly _tag: "Failed"; readonly reason: string }
  /** This code failed on it; the reason has the stack. */
  | { readonly _tag: "Defect"; readonly reason: string }

export type Reply =
  | {
      readonly _tag: "Done"
      /** For a commit, one for each write. */
      readonly outcomes: ReadonlyArray<Outcome>
      /** For expire and trim, how many records they made or removed. */
      readonly count: number
      /** The end of the log. */
      readonly lastSeq: number
      /** The size of the write-ahead log. */
      readonly logBytes: number
      /** Which file the writer has open. */
      readonly databaseId: string | undefined
    }
  | Away

/** Nothing was done, or nobody can tell whether it was. */
export interface Away {
  readonly _tag: "Away"
  readonly obstacle: Obstacle
  readonly reason: string
}
