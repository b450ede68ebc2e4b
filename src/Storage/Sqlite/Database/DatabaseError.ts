/**
 * What an error of the database or the system means for those who wait.
 */
import Database from "better-sqlite3"

/**
 * Whether pages of the database cannot be read, as they are damaged or the disk fails to deliver them. Other pages may
 * be as good as ever, and nothing that was written is in doubt.
 */
export const isUnreadable = (error: unknown): error is Database.SqliteError =>
  error instanceof Database.SqliteError && /^SQLITE_(CORRUPT|IOERR_(READ|SHORT_READ|CORRUPTFS|DATA)$)/.test(error.code)

/** Whether a lock of a database was not to be had. */
export const isLocked = (error: unknown): boolean =>
  error instanceof Database.SqliteError && /^SQLITE_(BUSY|LOCKED|PROTOCOL)/.test(error.code)

/** For how many milliseconds SQLite itself has tried to take a lock that was not to be had. */
export const lockedFor = (error: unknown): number =>
  error instanceof Database.SqliteError && error.code === "SQLITE_PROTOCOL" ? 10_000 : 0

/** Whether an error lies with the disk: it fails, is full, or does not deliver what was written. */
export const isOfDisk = (error: unknown): boolean =>
  error instanceof Database.SqliteError
    ? /^SQLITE_(IOERR|FULL|CORRUPT)/.test(error.code)
    : error instanceof Error && "syscall" in error

/** An error as the log shows it. */
export const describe = (error: unknown): string =>
  error instanceof Database.SqliteError ? `${error.code}: ${error.message}` : String(error)
