/**
 * The files of a database: how they are opened, who owns them, whether they still have their names, and the record of
 * its log.
 *
 * The epoch of the log is stored in the database, so that a copy has it, too. A record file next to the database has the
 * identity of the database file, and the last `seq` of its log. If the database differs from the record, as after a
 * backup was copied over it, it may lack changes that readers have seen. Then its log gets a new epoch.
 */
import {
  type BigIntStats,
  closeSync,
  lstatSync,
  openSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync
} from "node:fs"
import { join } from "node:path"
import Database from "better-sqlite3"
import * as NodeVersion from "../../../base/Process/NodeVersion.ts"
import { hasCode, makeFile } from "../../FileSystem.ts"
import { DatabaseUnavailable, isUnreadable } from "./DatabaseError.ts"

/** Identifies the file of a result of `stat`. */
export const idFrom = (stat: BigIntStats | undefined): string | undefined =>
  stat === undefined ? undefined : `${stat.dev}:${stat.ino}`

/** Identifies a file for as long as any process has it open; `undefined` if it does not exist. */
export const idOf = (file: string): string | undefined =>
  idFrom(statSync(file, { bigint: true, throwIfNoEntry: false }))

/** The file itself, or the target of a symbolic link. Throws if it does not exist. */
export const realFile = (path: string): string =>
  lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() === true ? realpathSync(path) : path

const roomBytes = Buffer.alloc(64 * 1024)

/** Whether a directory has space for a small file. False only if the disk or the user's quota is full. */
export const hasRoom = (directory: string): boolean => {
  const file = join(directory, `.room-${process.pid}`)
  try {
    rmSync(file, { force: true })
    const descriptor = openSync(file, "wx", 0o600)
    try {
      return writeSync(descriptor, roomBytes) === roomBytes.length
    } finally {
      closeSync(descriptor)
      rmSync(file, { force: true })
    }
  } catch (error) {
    return !hasCode(error, "ENOSPC", "EDQUOT")
  }
}

/**
 * Identifies a file also after all processes have closed it. After a restart a device may have another number, and the
 * number of an inode may belong to a new file, which has another time of birth. Throws if the file does not exist.
 */
export const lastingIdOf = (file: string): string => {
  const { birthtimeNs, ino } = statSync(file, { bigint: true })
  return `${ino}:${birthtimeNs}`
}

export interface FileIdentity {
  readonly databaseId: string | undefined
  readonly logId: string | undefined
}

export const identify = (file: string): FileIdentity => ({ databaseId: idOf(file), logId: idOf(`${file}-wal`) })

/** Throws if the open files have lost their names: a commit would be lost. Returns the bytes of the log. */
export const verify = (file: string, { databaseId, logId }: FileIdentity): number => {
  verifyDatabase(file, databaseId ?? "")
  const log = statSync(`${file}-wal`, { bigint: true, throwIfNoEntry: false })
  if (idFrom(log) !== logId) throw new DatabaseUnavailable(`${file}-wal is missing or replaced`, "FileReplaced")
  return Number(log?.size ?? 0)
}

/** Throws if a database is missing, or is not the expected file. */
export const verifyDatabase = (file: string, expected: string | undefined): void => {
  const id = idOf(file)
  if (id === undefined) throw new DatabaseUnavailable(`${file} is missing`, "FileMissing")
  if (expected !== undefined && id !== expected) {
    throw new DatabaseUnavailable(`another file has replaced ${file}`, "FileReplaced")
  }
}

/** Renames the log of a replaced database, which is closed: SQLite would apply it to the new one. */
export const setAsideLog = (file: string, { databaseId, logId }: FileIdentity): void => {
  const log = `${file}-wal`
  if (idOf(file) === databaseId || idOf(log) !== logId) return
  const stat = statSync(log, { throwIfNoEntry: false })
  if (stat !== undefined && stat.size > 0) renameSync(log, `${log}.orphan`)
}

/** Opens a connection. Throws on a Node that the native module, which the first connection loads, would crash. */
export const connect = (file: string, options: Database.Options): Database.Database => {
  const problem = NodeVersion.problem()
  if (problem !== undefined) throw new Error(problem)
  try {
    return new Database(file, options)
  } catch (error) {
    // The driver's way to say that it cannot access the directory, which is not a bug.
    throw error instanceof TypeError ? new DatabaseUnavailable(error.message, "Error") : error
  }
}

/** The processes that a lock excludes: all others, or only those that can write its file, if this process cannot. */
type LockKind = "exclusive" | "shared"

interface HeldLock {
  readonly db: Database.Database
  readonly id: string | undefined
}

/**
 * Proof that this process owns the content of a directory, such as a database.
 *
 * The lock is that of a SQLite transaction on a file in the directory: the operating system releases it however the
 * process ends. The file must not be opened in another way, because closing it would release the lock.
 */
export class Lock {
  private held: HeldLock

  /** Takes the lock. Throws if it cannot be taken. */
  constructor(
    readonly file: string,
    private readonly kind: LockKind = "exclusive"
  ) {
    this.held = lock(file, kind)
  }

  /**
   * Whether this process still has the lock. If the lock's file was removed, locks a new one, unless another process
   * has locked it. Returns false while the system cannot identify the file. Never throws.
   */
  isHeld(): boolean {
    try {
      if (idOf(this.file) === this.held.id) return true
      const next = lock(this.file, this.kind)
      this.held.db.close()
      this.held = next
      return true
    } catch {
      return false
    }
  }

  close(): void {
    this.held.db.close()
  }
}

/** Whether a lock could not be taken because another process has it. */
export const isLockedByAnother = (error: unknown): boolean =>
  error instanceof Error && "code" in error && String(error.code).startsWith("SQLITE_BUSY")

const lock = (file: string, kind: LockKind): HeldLock => {
  makeFile(file)
  const db = connect(file, { timeout: 0 })
  try {
    // A journal file would need space on a disk that may be full.
    db.pragma("journal_mode = MEMORY")
    db.exec("BEGIN EXCLUSIVE")
    // On a file that it cannot write, SQLite takes a shared lock instead of an exclusive one. This statement fails
    // then. It changes nothing, because the transaction is never committed.
    if (kind === "exclusive") db.pragma("user_version = 0")
    return { db, id: idOf(file) }
  } catch (error) {
    db.close()
    throw error
  }
}

/** What a database with a log has, in addition to the table `metadata`. */
export interface LogFormat {
  /** The query for the newest sequence number, which may be null. */
  readonly lastSeq: string
}

interface LogRecord {
  readonly epoch: string
  /** The identity of the database file. */
  readonly fileId: string
  /** The last `seq` of the log. Everything that was acknowledged is at or before it, unless the machine lost power. */
  readonly lastSeq: number
}

export const recordOf = (file: string): string => `${file.replace(/\.db$/, "")}.epoch`

const digits = 16

/** The record fits into one sector of the disk, so that it is never written partially. */
const print = ({ epoch, fileId, lastSeq }: LogRecord): string =>
  `epoch ${epoch}\nfile ${fileId}\nlastSeq ${String(lastSeq).padStart(digits, "0")}\n`

const pattern = /^epoch ([\x21-\x7e]{1,64})\nfile (\S+)\nlastSeq (\d{16})\n$/

/** The record of a database; `undefined` if it is absent or incomplete. */
const readRecord = (file: string): LogRecord | undefined => {
  let text: string
  try {
    text = readFileSync(recordOf(file), "latin1")
  } catch (error) {
    if (hasCode(error, "ENOENT")) return undefined
    throw error
  }
  const [, epoch, fileId, lastSeq] = pattern.exec(text) ?? []
  return epoch === undefined || fileId === undefined ? undefined : { epoch, fileId, lastSeq: Number(lastSeq) }
}

/** Replaces the record without a flush. A lost one causes an unnecessary epoch: the database has the new one first. */
const writeRecord = (file: string, record: LogRecord): void => {
  const place = recordOf(file)
  const mode = (statSync(place, { throwIfNoEntry: false })?.mode ?? 0o600) & 0o777
  writeFileSync(`${place}.new`, print(record), { mode })
  renameSync(`${place}.new`, place)
}

/** The result of a read; `undefined` if a damaged page prevents it: the rest of the database is served. */
const unlessDamaged = <A>(read: () => A): A | undefined => {
  try {
    return read()
  } catch (error) {
    if (isUnreadable(error)) return undefined
    throw error
  }
}

const lastSeqIn = (db: Database.Database, { lastSeq }: LogFormat): number =>
  db.prepare<[], number | null>(lastSeq).pluck().get() ?? 0

/** The log of a database, compared with its record. */
export interface Found {
  /** Its epoch; `""` if it has none yet. */
  readonly epoch: string
  /** How the database differs from the record; `undefined` if it does not. */
  readonly difference: string | undefined
}

/** The epoch that a database with a log has stored; `""` if it has none yet. */
export const epochIn = (db: Database.Database): string =>
  db.prepare<[], string>("SELECT value FROM metadata WHERE name = 'epoch'").pluck().get() ?? ""

/** Compares a database with its record. */
export const checkEpoch = (db: Database.Database, file: string, log: LogFormat): Found => {
  const stored = unlessDamaged(() => epochIn(db))
  const record = readRecord(file)
  if (record === undefined) return { epoch: stored ?? "", difference: "there is no record of its epoch" }
  const epoch = stored ?? record.epoch
  if (epoch !== record.epoch) return { epoch, difference: "it has another epoch than before" }
  if (lastingIdOf(file) !== record.fileId) return { epoch, difference: "it is another file than before" }
  const lastSeq = unlessDamaged(() => lastSeqIn(db, log)) ?? record.lastSeq
  if (lastSeq >= record.lastSeq) return { epoch, difference: undefined }
  return { epoch, difference: `its log ends at ${lastSeq}, and ended at ${record.lastSeq} before` }
}

export const newEpoch = (db: Database.Database, file: string, log: LogFormat): string => {
  const epoch = db.prepare<[], string>("SELECT lower(hex(randomblob(8)))").pluck().get()!
  db.prepare("INSERT OR REPLACE INTO metadata (name, value) VALUES ('epoch', ?)").run(epoch)
  writeRecord(file, { epoch, fileId: lastingIdOf(file), lastSeq: unlessDamaged(() => lastSeqIn(db, log)) ?? 0 })
  return epoch
}

/** The log of a database that is open for writing, and its record. */
export class OpenLog {
  readonly epoch: string
  private readonly descriptor: number
  private readonly offset: number
  private recorded: number | undefined

  /** Throws if the database differs from the record, unless no connection reads from it: then the epoch is renewed. */
  constructor(db: Database.Database, file: string, log: LogFormat, mayRenew: boolean) {
    const { difference, epoch } = checkEpoch(db, file, log)
    if (difference !== undefined && !mayRenew) throw new DatabaseUnavailable(`${file}: ${difference}`, "FileReplaced")
    this.epoch = difference === undefined ? epoch : newEpoch(db, file, log)
    this.offset = print({ epoch: this.epoch, fileId: lastingIdOf(file), lastSeq: 0 }).length - digits - 1
    this.descriptor = openSync(recordOf(file), "r+")
  }

  /**
   * Records the last `seq` of the log, before it is acknowledged. If the record cannot be written, the next call writes
   * it. Until then a restored backup may be mistaken for this log.
   */
  reached(lastSeq: number): void {
    if (lastSeq === this.recorded) return
    try {
      writeSync(this.descriptor, String(lastSeq).padStart(digits, "0"), this.offset)
      this.recorded = lastSeq
    } catch {
      this.recorded = undefined
    }
  }

  close(): void {
    closeSync(this.descriptor)
  }
}
