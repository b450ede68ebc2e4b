/**
 * Verifies a copy of a database that no other process uses.
 */
import { statSync } from "node:fs"
import Database from "better-sqlite3"
import { connect } from "../../SqliteDriver.ts"
import { refusalOf } from "../Database/AppliedMigrations.ts"
import { epochIn } from "../Database/Epoch.ts"
import { CopyError, toCopyError } from "./CopyError.ts"
import type { Kind } from "./Snapshot.ts"

/** A file to verify, and its expected kind. */
export interface VerifyRequest {
  readonly file: string
  readonly kind: Kind
  /** A query for the number of records. */
  readonly count: string
}

/** A database that passed the verification. */
export interface Verified {
  readonly schemaVersion: number
  readonly lastSeq: number
  readonly epoch: string
  readonly count: number
}

const damaged = (file: string, why: string): CopyError => new CopyError("Refused", `${file} is damaged: ${why}`)

const isDamage = (error: unknown): error is Error =>
  error instanceof Database.SqliteError && /^SQLITE_(CORRUPT|NOTADB)/.test(error.code)

const verifyOpen = (db: Database.Database, { count, file, kind }: VerifyRequest): Verified => {
  const number = (pragma: string): number => Number(db.pragma(pragma, { simple: true }))
  const read = <A>(text: string, otherwise: A): A => db.prepare<[], A | null>(text).pluck().get() ?? otherwise
  if (number("application_id") !== kind.applicationId) {
    throw new CopyError("Refused", `${file} is the database of another application, or of another part of the service`)
  }
  const schemaVersion = number("user_version")
  const reason = refusalOf(db, kind.migrations, schemaVersion)
  if (reason !== undefined) throw new CopyError("Refused", `${file} ${reason}`)
  const expected = number("page_count") * number("page_size")
  const { size } = statSync(file)
  if (size !== expected) throw damaged(file, `it has ${size} bytes, and should have ${expected}`)
  const problem = String(db.pragma("integrity_check(1)", { simple: true }))
  if (problem !== "ok") throw damaged(file, problem)
  return {
    schemaVersion,
    lastSeq: kind.lastSeq === undefined ? 0 : read(kind.lastSeq, 0),
    epoch: kind.lastSeq === undefined ? "" : epochIn(db),
    count: read(count, 0)
  }
}

/**
 * Reads a whole database, and takes it out of WAL mode. Throws a {@link CopyError} if it is damaged or of another kind.
 * SQLite cannot interrupt the check: a large database takes as long as the disk needs to read it.
 */
export const verify = (request: VerifyRequest): Verified => {
  const { file } = request
  try {
    if (statSync(file).size === 0) throw damaged(file, "it is empty")
    const db = connect(file, { fileMustExist: true, timeout: 0 })
    try {
      db.pragma("journal_mode = DELETE")
      return verifyOpen(db, request)
    } finally {
      db.close()
    }
  } catch (error) {
    throw isDamage(error) ? damaged(file, error.message) : toCopyError(error)
  }
}
