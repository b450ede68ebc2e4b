/** The meaning of errors of SQLite and of the file system for the writer and its callers. */
import Database from "better-sqlite3"

/** Why a database cannot be used. */
export type UnavailableCause =
  /** The file was moved or deleted. */
  | "FileMissing"
  /** Another file has replaced it, or its write-ahead log. */
  | "FileReplaced"
  /** A lock could not be taken: a reader of an old snapshot or another program has it, or it was never released. */
  | "Locked"
  /** The disk fails or is full, or pages cannot be read. Reads of other pages may succeed. */
  | "DiskError"
  /** Any other error of SQLite or of the file system. */
  | "Error"
  | "Defect"

/** The database cannot be used now; the message is for the log. */
export class DatabaseUnavailable extends Error {
  constructor(
    message: string,
    readonly unavailable: UnavailableCause
  ) {
    super(message)
  }
}

const hasCode = (error: unknown, codes: RegExp): boolean =>
  error instanceof Database.SqliteError && codes.test(error.code)

const isSystemError = (error: unknown): boolean => error instanceof Error && "syscall" in error

/** Whether pages cannot be read. Other pages may be intact, and no acknowledged write is in doubt. */
export const isUnreadable = (error: unknown): boolean =>
  hasCode(error, /^SQLITE_(CORRUPT|IOERR_(READ|SHORT_READ|CORRUPTFS|DATA)$)/)

export const isLocked = (error: unknown): boolean => hasCode(error, /^SQLITE_(BUSY|LOCKED|PROTOCOL)/)

/** How long SQLite itself has tried to take the lock, in milliseconds. */
export const lockedFor = (error: unknown): number => (hasCode(error, /^SQLITE_PROTOCOL$/) ? 10_000 : 0)

/** Whether an error is a bug in this code: neither SQLite nor the system reported it. */
export const isDefect = (error: unknown): boolean =>
  !(error instanceof DatabaseUnavailable || error instanceof Database.SqliteError || isSystemError(error))

/** Whether one write may have caused an error. Then the other writes of its group are tried again. */
export const concernsOneWrite = (error: unknown): boolean =>
  isDefect(error) || isUnreadable(error) || hasCode(error, /^SQLITE_(FULL|TOOBIG|CONSTRAINT|MISMATCH|RANGE|ERROR)/)

/** Whether the connection can be used after an error: only the transaction was lost. */
export const leavesConnectionSound = (error: unknown): boolean =>
  error instanceof DatabaseUnavailable ||
  hasCode(error, /^SQLITE_(BUSY|BUSY_SNAPSHOT|NOMEM|INTERRUPT)$/) ||
  (error instanceof Database.SqliteError && concernsOneWrite(error))

/** Why an error makes a database unavailable. `hasRoom` returns whether the disk has free space. */
export const unavailableCause = (error: unknown, hasRoom: () => boolean): UnavailableCause => {
  if (error instanceof DatabaseUnavailable) return error.unavailable
  if (isDefect(error)) return "Defect"
  if (isLocked(error)) return "Locked"
  const isOfDisk =
    isSystemError(error) ||
    hasCode(error, /^SQLITE_(IOERR|FULL|CORRUPT)/) ||
    (hasCode(error, /^SQLITE_CANTOPEN/) && !hasRoom())
  return isOfDisk ? "DiskError" : "Error"
}

/** An error as the log shows it: a defect with its stack. */
export const describe = (error: unknown): string => {
  if (error instanceof Database.SqliteError) return `${error.code}: ${error.message}`
  if (error instanceof DatabaseUnavailable) return error.message
  return isDefect(error) && error instanceof Error ? (error.stack ?? String(error)) : String(error)
}
