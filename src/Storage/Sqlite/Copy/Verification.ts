/** What a copy of a database must be: its description, its verification, and the failures of both. */
import { statSync } from "node:fs"
import Database from "better-sqlite3"
import { MiB } from "../../../base/Bytes.ts"
import { hasCode } from "../../FileSystem.ts"
import { type Format, refusalOf } from "../Database/Connection.ts"
import { describe as describeError, isLocked } from "../Database/DatabaseError.ts"
import { connect, epochIn } from "../Database/Files.ts"

export const mebibytes = (bytes: number): string => `${Math.ceil(bytes / MiB).toLocaleString("en-US")} MiB`

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
    hasCode(error, "ENOSPC", "EDQUOT") ||
    (error instanceof Database.SqliteError && error.code.startsWith("SQLITE_FULL"))
  if (isFull) return new CopyError("NoRoom", "The disk became full while the copy was written")
  const message = describeError(error)
  return new CopyError("Failed", isLocked(error) ? `The database is locked (${message})` : message)
}

export const number = (db: Database.Database, pragma: string): number => Number(db.pragma(pragma, { simple: true }))

/** The properties of a database that its copy has, too. */
export interface Description {
  readonly schemaVersion: number
  /** The newest sequence number, and the epoch of the log; 0 and `""` if there is none. */
  readonly lastSeq: number
  readonly epoch: string
}

/** Describes a database. Throws if it does not have the format. */
export const describe = (db: Database.Database, file: string, format: Format): Description => {
  const { applicationId, log, migrations } = format
  if (number(db, "application_id") !== applicationId) {
    refuse(file, "is the database of another application, or of another part of the service")
  }
  const schemaVersion = number(db, "user_version")
  const reason = refusalOf(db, migrations, schemaVersion)
  if (reason !== undefined) refuse(file, reason)
  if (log === undefined) return { schemaVersion, lastSeq: 0, epoch: "" }
  const lastSeq = db.prepare<[], number | null>(log.lastSeq).pluck().get() ?? 0
  return { schemaVersion, lastSeq, epoch: epochIn(db) }
}

export interface VerifyRequest {
  readonly file: string
  readonly format: Format
  readonly count: string
}

export interface Verified extends Description {
  readonly count: number
}

const refuseDamaged = (file: string, problem: string): never => refuse(file, `is damaged: ${problem}`)

const verifyOpen = (db: Database.Database, { count, file, format }: VerifyRequest): Verified => {
  const description = describe(db, file, format)
  const expected = number(db, "page_count") * number(db, "page_size")
  const { size } = statSync(file)
  if (size !== expected) refuseDamaged(file, `it has ${size} bytes, and should have ${expected}`)
  const problem = String(db.pragma("integrity_check(1)", { simple: true }))
  if (problem !== "ok") refuseDamaged(file, problem)
  return { ...description, count: db.prepare<[], number>(count).pluck().get() ?? 0 }
}

/**
 * Reads a whole database that no other process uses, and takes it out of WAL mode. Throws a {@link CopyError} if it is
 * damaged or of another format. SQLite cannot interrupt the check: a large database takes as long as the disk needs to
 * read it.
 */
export const verify = (request: VerifyRequest): Verified => {
  const { file } = request
  try {
    if (statSync(file).size === 0) refuseDamaged(file, "it is empty")
    const db = connect(file, { fileMustExist: true, timeout: 0 })
    try {
      db.pragma("journal_mode = DELETE")
      return verifyOpen(db, request)
    } finally {
      db.close()
    }
  } catch (error) {
    const isDamage = error instanceof Database.SqliteError && /^SQLITE_(CORRUPT|NOTADB)/.test(error.code)
    if (isDamage) return refuseDamaged(file, error.message)
    throw toCopyError(error)
  }
}
