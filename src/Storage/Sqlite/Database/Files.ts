/**
 * The files of a database: their identities, and whether they still have their names.
 */
import { closeSync, lstatSync, openSync, realpathSync, renameSync, rmSync, statSync, writeSync } from "node:fs"
import { join } from "node:path"
import { hasCode, idFrom, idOf } from "../../FileSystem.ts"
import { DatabaseUnavailable } from "./DatabaseError.ts"

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

/** The files of a connection. */
export interface FileIdentity {
  readonly databaseId: string | undefined
  readonly logId: string | undefined
}

/** The files that have a database's names now. */
export const identify = (file: string): FileIdentity => ({ databaseId: idOf(file), logId: idOf(`${file}-wal`) })

/**
 * Throws if the open files no longer have their names: a commit would be lost. Returns the size of the write-ahead log
 * in bytes.
 */
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

/**
 * Renames the write-ahead log of a replaced database after that was closed: SQLite would apply it to the new database
 * and corrupt it.
 */
export const setAsideLog = (file: string, { databaseId, logId }: FileIdentity): void => {
  const log = `${file}-wal`
  if (idOf(file) === databaseId || idOf(log) !== logId) return
  const stat = statSync(log, { throwIfNoEntry: false })
  if (stat !== undefined && stat.size > 0) renameSync(log, `${log}.orphan`)
}
