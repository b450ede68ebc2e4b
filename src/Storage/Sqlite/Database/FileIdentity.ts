/**
 * The database file: its names, what marks it as ours, and whether it still lies where it was opened.
 */
import { type BigIntStats, renameSync, statSync } from "node:fs"
import { join } from "node:path"
import Database from "better-sqlite3"
import type { Format } from "./Opening.ts"

/** `CWKV`, in the header of every database of this store (PRAGMA application_id). */
export const applicationId = 0x43574b56

/** The newest schema that this code knows (PRAGMA user_version); the number of the last migration. */
export const schemaVersion = 2

/** The table in every database of this service that lists the migrations that have run. */
export const migrationsTable = "effect_sql_migrations"

/** The files of a store in its directory. */
export const filesIn = (directory: string) => ({
  database: join(directory, "kv.db"),
  lock: join(directory, "kv.lock")
})

/** What marks the database of a store, and what brings it up to date. */
export const format: Format = { filesIn, applicationId, schemaVersion, load: () => import("../Kv/Schema.ts") }

/** Names one file for as long as somebody has it open; `undefined` where there is none. */
export const identityOf = (file: string): string | undefined =>
  nameOf(statSync(file, { bigint: true, throwIfNoEntry: false }))

const nameOf = (stat: BigIntStats | undefined): string | undefined =>
  stat === undefined ? undefined : `${stat.dev}:${stat.ino}`

/**
 * Opens a database for reads by one connection alone, which keeps all others out while it has read from it. It needs no
 * room on the disk, as it keeps the index of the write-ahead log in memory.
 */
export const openAlone = (file: string, timeout: number): Database.Database => {
  // It takes its lock for writing, and writes nothing.
  const db = new Database(file, { fileMustExist: true, timeout })
  try {
    db.pragma("locking_mode = EXCLUSIVE")
    db.pragma("query_only = ON")
    return db
  } catch (error) {
    db.close()
    throw error
  }
}

/**
 * Closes a connection that writes, the last one of its process, without leaving a need for a write-ahead log behind:
 * a database in that mode cannot even be read without making one, for which a full disk has no room.
 */
export const closeForGood = (db: Database.Database): void => {
  try {
    db.pragma("journal_mode = DELETE")
  } catch {
    // Another program reads it, or the disk fails: it is as good in the mode that it is in.
  }
  db.close()
}

/** What stands in the way of a database's use. */
export type Obstacle =
  /** The file was moved away or deleted. */
  | "missing"
  /** Another file stands in its place, or in the place of its write-ahead log. */
  | "replaced"
  /** A lock is in the way: of a reader of an old snapshot, of another program, or one that could not be given up. */
  | "locked"
  /** The disk fails or is full, or some of the database cannot be read: the rest of it may be. */
  | "disk"
  /** The file system or the database refuses. */
  | "failed"
  /** Nothing does: this code did what it must not. */
  | "defect"

/** The database cannot be used now; the message is for the log. */
export class Away extends Error {
  constructor(
    message: string,
    readonly obstacle: Obstacle
  ) {
    super(message)
  }
}

/** Which files were opened, to notice when others stand in their place. */
export interface Place {
  readonly databaseId: string | undefined
  readonly logId: string | undefined
}

/** The files that bear a database's names now. */
export const placeOf = (file: string): Place => ({ databaseId: identityOf(file), logId: identityOf(`${file}-wal`) })

/**
 * Throws where the open files are no longer those that bear their names: a commit there would be lost. Returns how many
 * bytes the write-ahead log has.
 */
export const checkPlace = (file: string, { databaseId, logId }: Place): number => {
  const now = identityOf(file)
  if (now === undefined) throw new Away(`${file} is missing`, "missing")
  if (now !== databaseId) throw new Away(`another file stands in the place of ${file}`, "replaced")
  const log = statSync(`${file}-wal`, { bigint: true, throwIfNoEntry: false })
  if (nameOf(log) !== logId) throw new Away(`${file}-wal is missing or replaced`, "replaced")
  return Number(log?.size ?? 0)
}

/**
 * Puts the log of a database away that has been replaced, once that is closed: SQLite would take it for the new one's,
 * and spoil it.
 */
export const setAside = (file: string, { databaseId, logId }: Place): void => {
  const log = `${file}-wal`
  if (identityOf(file) === databaseId || identityOf(log) !== logId) return
  const stat = statSync(log, { throwIfNoEntry: false })
  if (stat !== undefined && stat.size > 0) renameSync(log, `${log}.orphan`)
}
