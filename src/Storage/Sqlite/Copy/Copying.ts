/**
 * Copies databases while they are written, page by page, as all of them were at one moment.
 *
 * Each source has a read transaction until its copy is complete, so that writes of others neither show in the copy nor
 * make it begin again. Meanwhile the write-ahead log of the source cannot start over: it grows with each write, within a
 * limit at which the copy is given up. The copy is flushed bit by bit, so that no large flush delays those of the writer.
 */
import { createHash } from "node:crypto"
import { closeSync, fdatasyncSync, fsyncSync, openSync, readSync, statfsSync, statSync } from "node:fs"
import { dirname } from "node:path"
import Database from "better-sqlite3"
import { MiB } from "../../../Bytes.ts"
import { hasCode } from "../../FileSystem.ts"
import { openForReading } from "../Database/Connection.ts"
import { describe, isLocked } from "../Database/DatabaseError.ts"

/** What a database is known by; it can be sent to a thread. */
export interface Kind {
  readonly applicationId: number
  /** The newest schema that this code knows. */
  readonly schemaVersion: number
  /** The query for the newest sequence number; absent for a database without a log. */
  readonly lastSeq?: string | undefined
}

/** A database, and the file that its copy is to be, which must not exist. */
export interface Source {
  readonly kind: Kind
  readonly file: string
  readonly target: string
}

export interface CopyRequest {
  /** One database or several. What one of them says of another one holds in the copies too. */
  readonly sources: ReadonlyArray<Source>
  /** The copy is given up when a write-ahead log has grown by more bytes meanwhile. */
  readonly maxLogBytes: number
  /** The copy is given up when the disk that it is written to has fewer bytes left. */
  readonly bytesLeft: number
}

/** A copy: a database that is not in WAL mode, so that one file is all of it. */
export interface Copied {
  readonly bytes: number
  /** SHA-256 in hexadecimal digits. */
  readonly sha256: string
  readonly schemaVersion: number
  /** The newest sequence number, and the epoch of the log; 0 and `""` where there is none. */
  readonly lastSeq: number
  readonly epoch: string
}

/**
 * Bytes that are copied, and that there are of all sources. A copied byte counts again when it is read for its digest.
 */
export interface Progress {
  readonly done: number
  readonly total: number
}

export type FailureReason =
  /** A source is no database that this code can copy. */
  | "Refused"
  /** The disk of the target is full, or would be. */
  | "NoRoom"
  /** A write-ahead log has become too large. */
  | "LogTooLarge"
  /** Anything else: SQLite or the system failed. */
  | "Failed"

/** Why there is no copy. The message is a whole sentence without its full stop. */
export class CopyError extends Error {
  constructor(
    readonly reason: FailureReason,
    message: string
  ) {
    super(message)
  }
}

/** What is copied without a pause; it takes some milliseconds. */
const stepBytes = 4 * MiB

/** How long a lock is waited for that another process has, in milliseconds. */
const lockTimeout = 5000

/** How often it is tried to read all databases at one moment. A try fails only where a commit falls into it. */
const maxAttempts = 1000

const mebibytes = (bytes: number): string => `${Math.ceil(bytes / MiB).toLocaleString("en-US")} MiB`

const number = (db: Database.Database, pragma: string): number => Number(db.pragma(pragma, { simple: true }))

const refuse = (file: string, reason: string): never => {
  throw new CopyError("Refused", `${file} ${reason}`)
}

/** A connection that only reads; where the last writer was killed, it takes one that may recover the log. */
const connect = (file: string): Database.Database => {
  if (statSync(file, { throwIfNoEntry: false }) === undefined) return refuse(file, "does not exist")
  try {
    const db = openForReading(file, lockTimeout)
    try {
      db.prepare("SELECT count(*) FROM sqlite_schema").get()
      return db
    } catch (error) {
      db.close()
      throw error
    }
  } catch (error) {
    if (!(error instanceof Database.SqliteError && /^SQLITE_(READONLY|CANTOPEN)/.test(error.code))) throw error
    const db = new Database(file, { fileMustExist: true, timeout: lockTimeout })
    db.pragma("query_only = ON")
    return db
  }
}

/** A source as it was at the moment of the copy. */
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
    // The first read takes the snapshot.
    number(this.db, "schema_version")
    this.logBytesBefore = this.logBytes
  }

  /**
   * Throws where the write-ahead log has grown by more since the snapshot was taken, which keeps it from starting over.
   */
  limitLog(maxBytes: number): void {
    if (!this.db.open) return
    const grown = this.logBytes - this.logBytesBefore
    if (grown <= maxBytes) return
    throw new CopyError(
      "LogTooLarge",
      `The write-ahead log of ${this.source.file} has grown by ${mebibytes(grown)} while it was copied; the limit is ${mebibytes(maxBytes)}`
    )
  }

  /** What the copy is; throws where it would be none. */
  describe(): Omit<Copied, "bytes" | "sha256"> {
    const { file, kind } = this.source
    if (number(this.db, "application_id") !== kind.applicationId) refuse(file, "is not a database of this kind")
    const schemaVersion = number(this.db, "user_version")
    if (schemaVersion > kind.schemaVersion) {
      refuse(file, `has schema ${schemaVersion}, newer than the ${kind.schemaVersion} that this version works with`)
    }
    if (kind.lastSeq === undefined) return { schemaVersion, lastSeq: 0, epoch: "" }
    const hasMetadata = this.db.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'metadata'").get() !== undefined
    return {
      schemaVersion,
      lastSeq: this.db.prepare<[], number | null>(kind.lastSeq).pluck().get() ?? 0,
      epoch: hasMetadata
        ? (this.db.prepare<[], string>("SELECT value FROM metadata WHERE name = 'epoch'").pluck().get() ?? "")
        : ""
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
 * Takes all snapshots at one moment: while the others were taken, nothing was committed to the first database. Nobody has
 * to wait for that.
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

/** Bytes that the disk of a directory has left for this user. */
export const roomIn = (directory: string): number => {
  const { bavail, bsize } = statfsSync(directory)
  return bavail * bsize
}

/** Throws where a disk would have fewer bytes left than it must, with so many more on it. */
export const requireRoom = (directory: string, bytes: number, bytesLeft: number): void => {
  const room = roomIn(directory)
  if (room - bytes >= bytesLeft) return
  const needed = mebibytes(bytes + bytesLeft)
  throw new CopyError("NoRoom", `The disk of ${directory} has ${mebibytes(room)} left, and the copy needs ${needed}`)
}

/** Lets others run in between. */
export const pause = (): Promise<void> => new Promise(resolve => setImmediate(resolve))

/** The SHA-256 of a file in hexadecimal digits. `onRead` is told how many bytes were read, and may throw. */
export const digestOf = async (descriptor: number, onRead: (bytes: number) => void): Promise<string> => {
  const hash = createHash("sha256")
  const buffer = Buffer.allocUnsafe(MiB)
  for (let at = 0; ; ) {
    const bytes = readSync(descriptor, buffer, 0, buffer.length, at)
    if (bytes === 0) return hash.digest("hex")
    hash.update(buffer.subarray(0, bytes))
    at += bytes
    onRead(bytes)
    await pause()
  }
}

/** Copies one snapshot, and makes one file of the copy. */
const copyOne = async (
  snapshot: Snapshot,
  { bytesLeft }: CopyRequest,
  advance: (bytes: number) => void
): Promise<Copied> => {
  const { db, source } = snapshot
  const { target } = source
  const directory = dirname(target)
  const described = snapshot.describe()
  const pageBytes = number(db, "page_size")
  const descriptor = openSync(target, "wx+", 0o600)
  try {
    let left = snapshot.bytes
    await db.backup(target, {
      progress: ({ remainingPages }) => {
        fdatasyncSync(descriptor)
        requireRoom(directory, 0, bytesLeft)
        advance(left - remainingPages * pageBytes)
        left = remainingPages * pageBytes
        return Math.max(1, Math.floor(stepBytes / pageBytes))
      }
    })
    advance(left)
    // From here on the log of the source may start over.
    snapshot.close()
    const copy = new Database(target, { fileMustExist: true, timeout: 0 })
    try {
      copy.pragma("journal_mode = DELETE")
    } finally {
      copy.close()
    }
    fsyncSync(descriptor)
    const sha256 = await digestOf(descriptor, advance)
    return { ...described, bytes: statSync(target).size, sha256 }
  } finally {
    closeSync(descriptor)
  }
}

/** A failure as the caller is told of it. */
export const toCopyError = (error: unknown): CopyError => {
  if (error instanceof CopyError) return error
  const isFull =
    hasCode(error, "ENOSPC", "EDQUOT") ||
    (error instanceof Database.SqliteError && error.code.startsWith("SQLITE_FULL"))
  if (isFull) return new CopyError("NoRoom", "The disk became full while the copy was written")
  return new CopyError("Failed", isLocked(error) ? `The database is locked (${describe(error)})` : describe(error))
}

/**
 * Copies databases into files that are whole and flushed when it succeeds; what it has written otherwise is left to the
 * caller to remove. `onProgress` is called after each step, and ends the copy by throwing.
 */
export const copy = async (
  request: CopyRequest,
  onProgress: (progress: Progress) => void
): Promise<ReadonlyArray<Copied>> => {
  const snapshots: Array<Snapshot> = []
  try {
    for (const source of request.sources) snapshots.push(new Snapshot(source))
    takeAll(snapshots)
    const bytes = snapshots.reduce((sum, snapshot) => sum + snapshot.bytes, 0)
    requireRoom(dirname(request.sources[0]?.target ?? "."), bytes, request.bytesLeft)
    const total = 2 * bytes
    let done = 0
    const advance = (copied: number): void => {
      done += copied
      for (const snapshot of snapshots) snapshot.limitLog(request.maxLogBytes)
      onProgress({ done, total })
    }
    onProgress({ done, total })
    const copies: Array<Copied> = []
    for (const snapshot of snapshots) copies.push(await copyOne(snapshot, request, advance))
    return copies
  } catch (error) {
    throw toCopyError(error)
  } finally {
    for (const snapshot of snapshots) snapshot.close()
  }
}
