/**
 * Snapshots of several databases at one moment.
 */
import { statSync } from "node:fs"
import Database from "better-sqlite3"
import * as SqliteDriver from "../../SqliteDriver.ts"
import { refusalOf } from "../Database/AppliedMigrations.ts"
import { openForReading } from "../Database/Connection.ts"
import { epochIn } from "../Database/Epoch.ts"
import { CopyError, mebibytes, refuse } from "./CopyError.ts"

/** A kind of database. It can be sent to a thread. */
export interface Kind {
  readonly applicationId: number
  /** Those that this code knows. */
  readonly migrations: ReadonlyArray<{ readonly name: string }>
  /** The query for the newest sequence number; absent for a database without a log. */
  readonly lastSeq?: string | undefined
}

/** A database, and the file of its copy, which must not exist yet. */
export interface Source {
  readonly kind: Kind
  readonly file: string
  readonly target: string
}

/** The properties of a copy that its source has, too. */
export interface Description {
  readonly schemaVersion: number
  /** The newest sequence number, and the epoch of the log; 0 and `""` if there is none. */
  readonly lastSeq: number
  readonly epoch: string
}

/** How long SQLite waits for a lock of another process. */
const lockTimeoutMillis = 5000

/** How often all snapshots are tried to be taken at one moment. A try fails only if a commit occurs during it. */
const maxAttempts = 1000

/** The value of a pragma that is a number. */
export const number = (db: Database.Database, pragma: string): number => Number(db.pragma(pragma, { simple: true }))

/** Opens a connection for reads. If the last writer was killed, the connection may recover the log. */
const connect = (file: string): Database.Database => {
  if (statSync(file, { throwIfNoEntry: false }) === undefined) return refuse(file, "does not exist")
  try {
    const db = openForReading(file, lockTimeoutMillis)
    try {
      db.prepare("SELECT count(*) FROM sqlite_schema").get()
      return db
    } catch (error) {
      db.close()
      throw error
    }
  } catch (error) {
    if (!(error instanceof Database.SqliteError && /^SQLITE_(READONLY|CANTOPEN)/.test(error.code))) throw error
    const db = SqliteDriver.connect(file, { fileMustExist: true, timeout: lockTimeoutMillis })
    db.pragma("query_only = ON")
    return db
  }
}

/** A read transaction of one source. */
export class Snapshot {
  readonly db: Database.Database
  private readonly begin: Database.Statement
  private readonly end: Database.Statement
  private logBytesBefore = 0

  constructor(readonly source: Source) {
    this.db = connect(source.file)
    this.db.pragma(`cache_size = -${512}`)
    this.begin = this.db.prepare("BEGIN")
    this.end = this.db.prepare("ROLLBACK")
  }

  take(): void {
    if (this.db.inTransaction) this.end.run()
    this.begin.run()
    // The first read of a transaction takes its snapshot.
    number(this.db, "schema_version")
    this.logBytesBefore = this.logBytes
  }

  /** Throws if the write-ahead log has grown by more since the snapshot was taken. */
  limitLog(maxBytes: number): void {
    if (!this.db.open) return
    const grown = this.logBytes - this.logBytesBefore
    if (grown <= maxBytes) return
    throw new CopyError(
      "LogTooLarge",
      `The write-ahead log of ${this.source.file} has grown by ${mebibytes(grown)} while it was copied; the limit is ${mebibytes(maxBytes)}`
    )
  }

  /** The properties of the copy. Throws if the source is not of its kind. */
  describe(): Description {
    const { file, kind } = this.source
    if (number(this.db, "application_id") !== kind.applicationId) refuse(file, "is not a database of this kind")
    const schemaVersion = number(this.db, "user_version")
    const reason = refusalOf(this.db, kind.migrations, schemaVersion)
    if (reason !== undefined) refuse(file, reason)
    if (kind.lastSeq === undefined) return { schemaVersion, lastSeq: 0, epoch: "" }
    return {
      schemaVersion,
      lastSeq: this.db.prepare<[], number | null>(kind.lastSeq).pluck().get() ?? 0,
      epoch: epochIn(this.db)
    }
  }

  get bytes(): number {
    return number(this.db, "page_count") * number(this.db, "page_size")
  }

  private get logBytes(): number {
    return statSync(`${this.source.file}-wal`, { throwIfNoEntry: false })?.size ?? 0
  }

  close(): void {
    this.db.close()
  }
}

/**
 * Takes all snapshots at one moment: nothing was committed to the first database while the others were taken. Writers do
 * not wait for it.
 */
export const takeAll = (snapshots: ReadonlyArray<Snapshot>): void => {
  const [first, ...others] = snapshots
  if (first === undefined) return
  if (others.length === 0) return first.take()
  const watch = connect(first.source.file)
  try {
    for (let attempt = 0; attempt < maxAttempts; attempt++) {
      const before = number(watch, "data_version")
      for (const snapshot of snapshots) snapshot.take()
      if (number(watch, "data_version") === before) return
    }
  } finally {
    watch.close()
  }
  throw new CopyError("Failed", `${first.source.file} is written without a pause in which the copy could begin`)
}
