/**
 * Failures of copies and of verifications.
 */
import { SqliteError } from "better-sqlite3"
import { MiB } from "../../../Bytes.ts"
import { hasCode } from "../../FileSystem.ts"
import { describe, isLocked } from "../Database/DatabaseError.ts"

/** A number of bytes as messages show it. */
export const mebibytes = (bytes: number): string => `${Math.ceil(bytes / MiB).toLocaleString("en-US")} MiB`

/** Why a copy or a verification has failed. */
export type FailureReason =
  /** A source is not a database that this code can copy. */
  | "Refused"
  /** The disk of the target is full, or has too little space. */
  | "NoRoom"
  /** A write-ahead log has become too large. */
  | "LogTooLarge"
  /** Anything else: SQLite or the system failed. */
  | "Failed"

/** A copy or a verification has failed. The message is a sentence without its full stop. */
export class CopyError extends Error {
  constructor(
    readonly reason: FailureReason,
    message: string
  ) {
    super(message)
  }
}

/** Refuses a database. `reason` is the end of a sentence that begins with the file's name. */
export const refuse = (file: string, reason: string): never => {
  throw new CopyError("Refused", `${file} ${reason}`)
}

/** Converts any error into the one that callers receive. */
export const toCopyError = (error: unknown): CopyError => {
  if (error instanceof CopyError) return error
  const isFull =
    hasCode(error, "ENOSPC", "EDQUOT") || (error instanceof SqliteError && error.code.startsWith("SQLITE_FULL"))
  if (isFull) return new CopyError("NoRoom", "The disk became full while the copy was written")
  return new CopyError("Failed", isLocked(error) ? `The database is locked (${describe(error)})` : describe(error))
}
