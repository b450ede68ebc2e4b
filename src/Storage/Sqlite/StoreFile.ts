/**
 * The database file: its names, what marks it as ours, and whether it still lies where it was opened.
 */
import { statSync } from "node:fs"
import { join } from "node:path"

/** `CWKV`, in the header of every database of this store (PRAGMA application_id). */
export const applicationId = 0x43574b56

/** The newest schema that this code knows (PRAGMA user_version); the number of the last migration. */
export const schemaVersion = 1

/** The files of a store in its directory. */
export const filesIn = (directory: string) => ({
  database: join(directory, "kv.db"),
  lock: join(directory, "kv.lock")
})

/** Names one file for as long as somebody has it open; `undefined` where there is none. */
export const identityOf = (file: string): string | undefined => {
  const stat = statSync(file, { bigint: true, throwIfNoEntry: false })
  return stat === undefined ? undefined : `${stat.dev}:${stat.ino}`
}

/** What stands in the way of a database's use. */
export type Obstacle =
  /** The file was moved away or deleted. */
  | "missing"
  /** Another file stands in its place, or in the place of its write-ahead log. */
  | "replaced"
  /** Readers of old snapshots hold up a checkpoint that must come first. */
  | "pinned"
  /** The disk, the file system or the database refuses. */
  | "failed"
  /** Nothing does: this code did what it must not. */
  | "defect"

/** The database cannot be used now; the message is for the log. */
export class Away extends Error {
  constructor(
    message: string,
    readonly obstacle: Obstacle
  ) {
    super(message)
  }
}
