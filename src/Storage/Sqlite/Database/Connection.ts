/**
 * What marks the file of a database, and how connections to it are opened and closed.
 */
import { join } from "node:path"
import Database from "better-sqlite3"
import { MiB } from "../../../Bytes.ts"
import { differenceIn } from "./AppliedMigrations.ts"
import { DatabaseUnavailable } from "./DatabaseError.ts"
import type { LogFormat } from "./Epoch.ts"
import type { Migration } from "./Migrations.ts"

/** What marks the files of a database, and its schema. */
export interface Format {
  /** The files are `<name>.db` and `<name>.lock`. */
  readonly name: string
  /** PRAGMA application_id. */
  readonly applicationId: number
  /** The newest schema that this code knows (PRAGMA user_version): how many migrations there are. */
  readonly schemaVersion: number
  /** The names of the migrations, in their order. */
  readonly migrationNames: ReadonlyArray<string>
  /** Absent for a database without a log, which has no epoch. */
  readonly log?: LogFormat
  /** Loads the migrations, which few starts need. */
  readonly load: () => Promise<{ readonly migrations: ReadonlyArray<Migration> }>
}

/**
 * The format of a database into which another store is copied, until the copy is finished: it has an id of its own, the
 * letters in lower case, so that no process serves it.
 */
export const unfinishedCopyOf = ({ log: _, ...format }: Format): Format => ({
  ...format,
  applicationId: format.applicationId | 0x20202020
})

/** The file of a database in its directory. */
export const fileOf = (directory: string, { name }: Format): string => join(directory, `${name}.db`)

/** Calls `use` on a connection, which is closed if that throws. */
const using = (db: Database.Database, use: (db: Database.Database) => void): Database.Database => {
  try {
    use(db)
    return db
  } catch (error) {
    db.close()
    throw error
  }
}

/** Opens a connection. The driver throws a `TypeError` where it cannot access the directory, which is not a bug. */
const connect = (file: string, options: Database.Options): Database.Database => {
  try {
    return new Database(file, options)
  } catch (error) {
    throw error instanceof TypeError ? new DatabaseUnavailable(error.message, "Error") : error
  }
}

/** Opens a database for writing. Throws where its format is another, or commits would not be durable. */
export const openForWriting = (
  file: string,
  { applicationId, migrationNames, schemaVersion }: Format
): Database.Database =>
  using(connect(file, { fileMustExist: true, timeout: 250 }), db => {
    const read = (pragma: string): unknown => db.pragma(pragma, { simple: true })
    const refuse = (reason: string): never => {
      throw new DatabaseUnavailable(`${file} ${reason}`, "Error")
    }
    if (read("application_id") !== applicationId) refuse("is the database of another application")
    const version = read("user_version")
    if (version !== schemaVersion) refuse(`has schema ${version}, and this version works with ${schemaVersion}`)
    const difference = differenceIn(db, migrationNames, schemaVersion)
    if (difference !== undefined) refuse(`was written by a version with other migrations: ${difference}`)
    if (read("journal_mode = WAL") !== "wal") refuse("cannot be opened in WAL mode")
    db.pragma("synchronous = FULL")
    // 16 MiB, four times the default: pages that are written often are copied back less often.
    db.pragma("wal_autocheckpoint = 4000")
    db.pragma(`journal_size_limit = ${64 * MiB}`)
    db.pragma("cache_size = -8192")
    db.pragma("mmap_size = 0")
    // Only the schema: the service must start even if a page of a table cannot be read.
    db.prepare("SELECT count(*) FROM sqlite_schema").get()
    // Without a setting in the file, the first read of an existing write-ahead log lowers this to NORMAL.
    if (read("synchronous") !== 2) refuse("cannot be opened with synchronous = FULL")
  })

/** Opens a database for reads, beside a writer. */
export const openForReading = (file: string, timeout = 100): Database.Database =>
  connect(file, { readonly: true, fileMustExist: true, timeout })

/**
 * Opens a database for reads, with an exclusive lock from the first read on. It keeps the index of the write-ahead log
 * in memory, and so works on a full disk.
 */
export const openExclusive = (file: string, timeout = 100): Database.Database =>
  // It takes its lock for writing, and writes nothing.
  using(connect(file, { fileMustExist: true, timeout }), db => {
    db.pragma("locking_mode = EXCLUSIVE")
    db.pragma("query_only = ON")
  })

/**
 * Closes the last connection of the process, and takes the database out of WAL mode: in that mode it could not even be
 * read without making a write-ahead log, for which a full disk has no room.
 */
export const closeLast = (db: Database.Database): void => {
  try {
    db.pragma("journal_mode = DELETE")
  } catch {
    // Another program reads it, or the disk fails: the database stays valid in WAL mode.
  }
  db.close()
}

/**
 * Copies the whole write-ahead log into the database file, flushes that, and truncates the log. Returns whether it
 * could: a reader of an older snapshot prevents it.
 */
export const checkpoint = (db: Database.Database): boolean => {
  const [row] = db.pragma("wal_checkpoint(TRUNCATE)") as ReadonlyArray<{ readonly busy: number }>
  return row?.busy === 0
}

/** Empties the page cache, since pages that could not be read may be readable by now. */
export const clearCache = (db: Database.Database): void => {
  if (db.open) db.pragma("shrink_memory")
}
