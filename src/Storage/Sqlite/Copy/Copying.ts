/**
 * Copies databases while they are written, page by page, from snapshots of one moment.
 *
 * Each source has a read transaction until its copy is complete. Concurrent writes neither appear in the copy nor restart
 * it. SQLite cannot reset the write-ahead log of the source during the copy: the log grows with each write, and above a
 * limit the copy fails. The copy is flushed in small portions, so that no large flush delays those of the writer.
 */
import { createHash } from "node:crypto"
import { closeSync, fdatasyncSync, fsyncSync, openSync, readSync, statfsSync, statSync } from "node:fs"
import { dirname } from "node:path"
import Database from "better-sqlite3"
import { MiB } from "../../../base/Bytes.ts"
import { type Format, openForReading } from "../Database/Connection.ts"
import { connect } from "../Database/Files.ts"
import { CopyError, type Description, describe, mebibytes, number, refuse, toCopyError } from "./Verification.ts"

/** A database, and the file of its copy, which must not exist yet. */
export interface Source {
  readonly format: Format
  readonly file: string
  readonly target: string
}

export interface CopyRequest {
  /** One database or several. References between them are valid in the copies, too. */
  readonly sources: ReadonlyArray<Source>
  /** The copy fails when a write-ahead log grows by more bytes during the copy. */
  readonly maxLogBytes: number
  /** The copy fails when the disk of the target has fewer bytes left. */
  readonly bytesLeft: number
}

/** A copy. It is not in WAL mode, and so consists of one file. */
export interface Copied extends Description {
  readonly bytes: number
  /** SHA-256 in hexadecimal digits. */
  readonly sha256: string
}

/** The bytes that were processed, and the bytes of all sources. A byte counts twice: when copied and when digested. */
export interface Progress {
  readonly done: number
  readonly total: number
}

/** How long SQLite waits for a lock of another process. */
const lockTimeoutMillis = 5000

/** How often all snapshots are tried to be taken at one moment. A try fails only if a commit occurs during it. */
const maxAttempts = 1000

/** The bytes that are copied without a pause, which takes some milliseconds. */
const stepBytes = 4 * MiB

/** Throws if a disk would have fewer than `bytesLeft` bytes left after `bytes` more were written. */
export const requireRoom = (directory: string, bytes: number, bytesLeft: number): void => {
  const { bavail, bsize } = statfsSync(directory)
  const room = bavail * bsize
  if (room - bytes >= bytesLeft) return
  const needed = mebibytes(bytes + bytesLeft)
  throw new CopyError("NoRoom", `The disk of ${directory} has ${mebibytes(room)} left, and the copy needs ${needed}`)
}

const pause = (): Promise<void> => new Promise(resolve => setImmediate(resolve))

/** The SHA-256 of a file in hexadecimal digits. `onRead` receives the number of bytes after each read, and may throw. */
const digestOf = async (descriptor: number, onRead: (bytes: number) => void): Promise<string> => {
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

/** Opens a connection for reads. If the last writer was killed, the connection may recover the log. */
const connectSource = (file: string): Database.Database => {
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
    const db = connect(file, { fileMustExist: true, timeout: lockTimeoutMillis })
    db.pragma("query_only = ON")
    return db
  }
}

export class Snapshot {
  readonly db: Database.Database
  private logBytesBefore = 0

  constructor(readonly source: Source) {
    this.db = connectSource(source.file)
    this.db.pragma("cache_size = -512")
  }

  take(): void {
    if (this.db.inTransaction) this.db.exec("ROLLBACK")
    this.db.exec("BEGIN")
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

  describe(): Description {
    return describe(this.db, this.source.file, this.source.format)
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

/** Takes all snapshots at one moment: nothing was committed to the first database while the others were taken. */
export const takeAll = (snapshots: ReadonlyArray<Snapshot>): void => {
  const [first, ...others] = snapshots
  if (first === undefined) return
  if (others.length === 0) return first.take()
  const watch = connectSource(first.source.file)
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
    // From now on SQLite may reset the log of the source.
    snapshot.close()
    const copy = connect(target, { fileMustExist: true, timeout: 0 })
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

/**
 * Copies databases into files, which are complete and flushed when it succeeds. After a failure the caller removes the
 * files. `onProgress` is called after each step, and may throw to cancel the copy.
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
