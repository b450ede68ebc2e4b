/**
 * Which files a connection has open, and whether they still have their names.
 */
import { type BigIntStats, renameSync, statSync } from "node:fs"
import { DatabaseUnavailable } from "./DatabaseError.ts"

const idFrom = (stat: BigIntStats | undefined): string | undefined =>
  stat === undefined ? undefined : `${stat.dev}:${stat.ino}`

/** Identifies a file for as long as somebody has it open; `undefined` where there is none. */
export const idOf = (file: string): string | undefined =>
  idFrom(statSync(file, { bigint: true, throwIfNoEntry: false }))

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
