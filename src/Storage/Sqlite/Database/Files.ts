/**
 * The files of a database: how they are made, locked and told apart, and whether they still have their names.
 */
import {
  type BigIntStats,
  closeSync,
  lstatSync,
  mkdirSync,
  openSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeSync
} from "node:fs"
import { dirname, join } from "node:path"
import Database from "better-sqlite3"
import { DatabaseUnavailable } from "./DatabaseError.ts"

const isDirectory = (path: string): boolean => statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false

/**
 * Makes a directory that only its owner can read, and its missing parents. One that exists is not changed. Throws the
 * system's error.
 *
 * Node's own recursion does not end where the system answers ENOENT below an existing directory, as in `/proc`.
 */
export const makeDirectory = (path: string): void => {
  if (isDirectory(path)) return
  const parent = dirname(path)
  if (parent !== path) makeDirectory(parent)
  try {
    mkdirSync(path, { mode: 0o700 })
  } catch (error) {
    // Another process may have made it meanwhile.
    if (!isDirectory(path)) throw error
  }
}

/** Whether an error is one of the system with one of these codes. */
export const hasCode = (error: unknown, ...codes: ReadonlyArray<string>): boolean =>
  error instanceof Error && "code" in error && codes.some(code => code === error.code)

/** Makes an empty file. One that exists is not changed. Throws the system's error. */
export const makeFile = (path: string, mode = 0o600): void => {
  try {
    // An existing file is not opened: to close it would release the locks that this process has on it.
    closeSync(openSync(path, "wx", mode))
  } catch (error) {
    if (!hasCode(error, "EEXIST")) throw error
  }
}

/** The file itself, or the target of a symbolic link. Throws where that does not exist. */
export const realFile = (path: string): string =>
  lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() === true ? realpathSync(path) : path

const roomBytes = Buffer.alloc(64 * 1024)

/** Whether a directory has room for a small file. It is false only if the disk or the user's quota is full. */
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

const idFrom = (stat: BigIntStats | undefined): string | undefined =>
  stat === undefined ? undefined : `${stat.dev}:${stat.ino}`

/** Identifies a file for as long as somebody has it open; `undefined` where there is none. */
export const idOf = (file: string): string | undefined =>
  idFrom(statSync(file, { bigint: true, throwIfNoEntry: false }))

/**
 * Identifies a file also after everybody has closed it. The number of a device may be another one after a restart, and
 * that of an inode may be given to a new file, which has another time of birth. Throws where there is no file.
 */
export const lastingIdOf = (file: string): string => {
  const { birthtimeNs, ino } = statSync(file, { bigint: true })
  return `${ino}:${birthtimeNs}`
}

/** The files of a connection. */
export interface FileIdentity {
  readonly databaseId: string | undefined
  readonly logId: string | undefined
}

/** The files that have a database's names now. */
export const identify = (file: string): FileIdentity => ({ databaseId: idOf(file), logId: idOf(`${file}-wal`) })

/**
 * Throws where the open files no longer have their names: a commit there would be lost. Returns the size of the
 * write-ahead log in bytes.
 */
export const verify = (file: string, { databaseId, logId }: FileIdentity): number => {
  verifyDatabase(file, databaseId ?? "")
  const log = statSync(`${file}-wal`, { bigint: true, throwIfNoEntry: false })
  if (idFrom(log) !== logId) throw new DatabaseUnavailable(`${file}-wal is missing or replaced`, "FileReplaced")
  return Number(log?.size ?? 0)
}

/** Throws where a database is missing, or is another file than the one expected. */
export const verifyDatabase = (file: string, expected: string | undefined): void => {
  const id = idOf(file)
  if (id === undefined) throw new DatabaseUnavailable(`${file} is missing`, "FileMissing")
  if (expected !== undefined && id !== expected) {
    throw new DatabaseUnavailable(`another file has replaced ${file}`, "FileReplaced")
  }
}

/**
 * Renames the write-ahead log of a database that was replaced, once that is closed: SQLite would apply it to the new
 * database and corrupt it.
 */
export const setAsideLog = (file: string, { databaseId, logId }: FileIdentity): void => {
  const log = `${file}-wal`
  if (idOf(file) === databaseId || idOf(log) !== logId) return
  const stat = statSync(log, { throwIfNoEntry: false })
  if (stat !== undefined && stat.size > 0) renameSync(log, `${log}.orphan`)
}

/** Against whom a lock is: everybody, or those who can write its file where this process can only read it. */
type LockKind = "exclusive" | "shared"

interface HeldLock {
  readonly db: Database.Database
  readonly id: string | undefined
}

/**
 * Proof that this process owns a database.
 *
 * The lock is that of a SQLite transaction on a file beside the database: the operating system releases it however the
 * process ends. The file must not be opened in another way, since closing it would release the lock.
 */
export class Lock {
  private held: HeldLock

  /** Takes the lock. Throws where it cannot be taken. */
  constructor(
    readonly file: string,
    private readonly kind: LockKind = "exclusive"
  ) {
    this.held = lock(file, kind)
  }

  /**
   * Whether this process still owns the database. Where the lock's file was removed, a new one is locked if no other
   * process has locked it. It is false while the system cannot tell which file that is. It never throws.
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

const lock = (file: string, kind: LockKind): HeldLock => {
  makeFile(file)
  const db = new Database(file, { timeout: 0 })
  try {
    // A journal in a file would need room on a disk that may be full.
    db.pragma("journal_mode = MEMORY")
    db.exec("BEGIN EXCLUSIVE")
    // SQLite takes a shared lock instead of an exclusive one on a file that it cannot write. This fails then; it changes
    // nothing, as the transaction is never committed.
    if (kind === "exclusive") db.pragma("user_version = 0")
    return { db, id: idOf(file) }
  } catch (error) {
    db.close()
    throw error
  }
}
