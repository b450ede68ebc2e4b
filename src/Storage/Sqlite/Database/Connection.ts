/** The format of database files, whether a file has it, and how connections are opened and closed. */
import { dirname, join } from "node:path"
import type Database from "better-sqlite3"
import { MiB } from "../../../base/Bytes.ts"
import { differenceOf, isOfDevelopment, ofDevelopment } from "../../MigrationNames.ts"
import { DatabaseUnavailable, isUnreadable } from "./DatabaseError.ts"
import { connect, hasRoom, type LogFormat } from "./Files.ts"

/** One step from a schema version to the next: statements without parameters. A released one never changes. */
export interface Migration {
  /** In lower case with underscores, as in the table of migrations. */
  readonly name: string
  readonly statements: ReadonlyArray<string>
}

/** The format of the files of a database, and its schema. */
export interface Format {
  /** The files are `<name>.db` and `<name>.lock`. */
  readonly name: string
  readonly applicationId: number
  /** The steps to the newest schema that this code knows. Their number is its version (PRAGMA user_version). */
  readonly migrations: ReadonlyArray<Migration>
  /** Absent for a database without a log, which has no epoch. */
  readonly log?: LogFormat
}

/** The format of a database while another store is copied into it: another id, so that no process serves it. */
export const unfinishedCopyOf = ({ log: _, ...format }: Format): Format => ({
  ...format,
  applicationId: format.applicationId | 0x20202020
})

export const fileOf = (directory: string, { name }: Format): string => join(directory, `${name}.db`)

export const migrationsTable = "effect_sql_migrations"

/** The listed migrations. Only databases of development versions may have no list. */
const listedIn = (db: Database.Database): ReadonlyMap<number, string> | undefined => {
  if (db.prepare("SELECT 1 FROM sqlite_schema WHERE name = ?").get(migrationsTable) === undefined) return undefined
  const rows = db.prepare<[], [number, string]>(`SELECT migration_id, name FROM ${migrationsTable}`).raw().all()
  return new Map(rows)
}

/** Migrations by their names. The position of one is its schema version. */
type Named = ReadonlyArray<{ readonly name: string }>

/** The end of a sentence that refuses a database of a newer schema than this code knows. */
export const newerThan = (known: Named, version: number): string | undefined =>
  version > known.length
    ? `has schema ${version}, newer than the ${known.length} that this version works with`
    : undefined

/**
 * Why this code cannot work with a database of a schema version, as the end of a sentence; `undefined` if it can. A list
 * on a damaged page is ignored: the rest of the database is served.
 */
export const refusalOf = (db: Database.Database, known: Named, version: number): string | undefined => {
  const newer = newerThan(known, version)
  try {
    const listed = listedIn(db)
    if (listed === undefined || isOfDevelopment(listed)) return ofDevelopment("directory")
    if (newer !== undefined) return newer
    const difference = differenceOf(known.slice(0, version), listed)
    return difference && `was written by a version with other migrations: ${difference}`
  } catch (error) {
    if (isUnreadable(error)) return newer
    throw error
  }
}

/** Calls `use` on a connection, and closes the connection if that throws. */
const using = (db: Database.Database, use: (db: Database.Database) => void): Database.Database => {
  try {
    use(db)
    return db
  } catch (error) {
    db.close()
    throw error
  }
}

/** Opens a database for writing. Throws if its format differs, or if commits would not be durable. */
export const openForWriting = (file: string, { applicationId, migrations }: Format): Database.Database =>
  using(connect(file, { fileMustExist: true, timeout: 250 }), db => {
    const read = (pragma: string): unknown => db.pragma(pragma, { simple: true })
    const refuse = (reason: string): never => {
      throw new DatabaseUnavailable(`${file} ${reason}`, "Error")
    }
    if (read("application_id") !== applicationId) refuse("is the database of another application")
    const version = read("user_version")
    const reason = refusalOf(db, migrations, Number(version))
    if (reason !== undefined) refuse(reason)
    if (version !== migrations.length) refuse(`has schema ${version}, and this version works with ${migrations.length}`)
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

/** Opens a database for reads, in addition to a writer. */
export const openForReading = (file: string, timeoutMillis = 100): Database.Database =>
  connect(file, { readonly: true, fileMustExist: true, timeout: timeoutMillis })

/** Opens a database for reads, exclusively: the index of its log is in memory and takes no space on the disk. */
export const openExclusive = (file: string, timeoutMillis = 100): Database.Database =>
  // It takes a lock for writing, but writes nothing.
  using(connect(file, { fileMustExist: true, timeout: timeoutMillis }), db => {
    db.pragma("locking_mode = EXCLUSIVE")
    db.pragma("query_only = ON")
  })

/** Uses a connection for reads, from which `use` reads at once. On a full disk the connection is exclusive. */
export const withReadable = <A>(
  file: string,
  timeoutMillis: number,
  use: (db: Database.Database, isExclusive: boolean) => A
): A => {
  try {
    return use(openForReading(file, timeoutMillis), false)
  } catch (error) {
    if (hasRoom(dirname(file))) throw error
    return use(openExclusive(file, timeoutMillis), true)
  }
}

/**
 * Closes the last connection of the process, and takes the database out of WAL mode: reading a database in this mode
 * creates a write-ahead log, for which a full disk has no space.
 */
export const closeLast = (db: Database.Database): void => {
  try {
    db.pragma("journal_mode = DELETE")
  } catch {
    // Another program reads it, or the disk fails: the database stays valid in WAL mode.
  }
  db.close()
}

/** Flushes the write-ahead log into the database and truncates it. Returns false if a reader prevents it. */
export const checkpoint = (db: Database.Database): boolean => {
  const [row] = db.pragma("wal_checkpoint(TRUNCATE)") as ReadonlyArray<{ readonly busy: number }>
  return row?.busy === 0
}

/** Empties the page cache, because pages that could not be read may be readable by now. */
export const clearCache = (db: Database.Database): void => {
  if (db.open) db.pragma("shrink_memory")
}
