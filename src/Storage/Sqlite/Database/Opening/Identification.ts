/**
 * Finds out whether a file is a database of this service, and of which schema version, before SQLite may change it.
 * Others are refused.
 */
import { accessSync, closeSync, constants, openSync, readSync, statSync } from "node:fs"
import { type Database, SqliteError } from "better-sqlite3"
import { Effect, Schema } from "effect"
import { type Format, newerThan, openExclusive, refusalOf, unfinishedCopyOf, withReadable } from "../Connection.ts"
import { isLocked } from "../DatabaseError.ts"

/** The database cannot be opened; it was not changed. */
export class StoreRefused extends Schema.TaggedError<StoreRefused>()("StoreRefused", {
  /** The file or directory that prevents it. */
  file: Schema.String,
  /** The end of a sentence that begins with the file's name. */
  reason: Schema.String
}) {
  override get message(): string {
    return `${this.file} ${this.reason}`
  }
  /** Users of a program that this error ends see the sentence. A stack trace would not help them. */
  override readonly stack = `${this.name}: ${this.message}`
}

/** Fails with `StoreRefused`. `reason` is the end of a sentence that begins with the file's name. */
export const refuse = (file: string, reason: string) => Effect.fail(new StoreRefused({ file, reason }))

/** Runs `body`, which may throw. The failure says `problem`, the end of a sentence, and the error's message. */
export const attempt = <A>(file: string, problem: string, body: () => A): Effect.Effect<A, StoreRefused> =>
  Effect.try({
    try: body,
    catch: error => new StoreRefused({ file, reason: `${problem} (${messageOf(error)})` })
  })

/** The message of an error, with that of its cause. */
export const messageOf = (error: unknown): string => {
  if (!(error instanceof Error)) return String(error)
  return error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : error.message
}

const headerBytes = 100
const magic = "SQLite format 3\u0000"

/** The first 100 bytes of a database (https://www.sqlite.org/fileformat.html, 1.3). */
interface Header {
  readonly isSqlite: boolean
  readonly applicationId: number
  readonly userVersion: number
}

/** Parses a header. There may be fewer bytes than a header has. */
const parseHeader = (bytes: Buffer): Header =>
  bytes.length < headerBytes || bytes.toString("latin1", 0, magic.length) !== magic
    ? { isSqlite: false, applicationId: 0, userVersion: 0 }
    : { isSqlite: true, applicationId: bytes.readUInt32BE(68), userVersion: bytes.readUInt32BE(60) }

const readHeader = (file: string): Header | undefined => {
  const stat = statSync(file, { throwIfNoEntry: false })
  if (stat === undefined) return undefined
  if (!stat.isFile()) return { isSqlite: false, applicationId: 0, userVersion: 0 }
  if (stat.size === 0) return undefined
  const descriptor = openSync(file, "r")
  try {
    const bytes = Buffer.alloc(headerBytes)
    return parseHeader(bytes.subarray(0, readSync(descriptor, bytes, 0, headerBytes, 0)))
  } finally {
    closeSync(descriptor)
  }
}

/** The application id of a database file; `undefined` if the file is absent or empty. Throws if it cannot be read. */
export const applicationIdOf = (file: string): number | undefined => readHeader(file)?.applicationId

const unfinished = "has a copy of another store that was not finished: run causeway migrate-store again"

/** The schema version of a database, or `undefined` if it does not exist. Refuses other files. */
export const versionOf = (file: string, format: Format): Effect.Effect<number | undefined, StoreRefused> =>
  Effect.gen(function* () {
    // SQLite must not open a file whose header is not ours.
    const header = yield* attempt(file, "cannot be read", () => readHeader(file))
    const log = yield* attempt(file, "cannot be read", () => statSync(`${file}-wal`, { throwIfNoEntry: false }))
    if (header === undefined) {
      if (log === undefined || log.size === 0) return undefined
      return yield* refuse(file, `is missing or empty, while ${file}-wal has data of it: restore it, or move that away`)
    }
    if (!header.isSqlite) return yield* refuse(file, "is not a SQLite database")
    if (header.applicationId !== format.applicationId) {
      if (header.applicationId === unfinishedCopyOf(format).applicationId) return yield* refuse(file, unfinished)
      return yield* refuse(file, "is the database of another application")
    }
    const names = yield* attempt(file, "cannot be read", () => statSync(file).nlink)
    if (names > 1) {
      return yield* refuse(file, "has several names (hard links), and each would have its own write-ahead log")
    }
    yield* attempt(file, "cannot be written", () => accessSync(file, constants.R_OK | constants.W_OK))
    if (log === undefined || log.size === 0) return header.userVersion
    // The log may have a newer version than the header.
    return yield* attempt(file, "cannot be opened", () =>
      reading(file, db => Number(db.pragma("user_version", { simple: true })))
    )
  })

/** Refuses a database of a newer schema, and one whose migrations differ from those that have the same numbers here. */
export const requireKnownMigrations = (file: string, { migrations }: Format, version: number) =>
  Effect.flatMap(
    attempt(file, "cannot be opened", () => {
      try {
        return readingRecovered(file, db => refusalOf(db, migrations, version))
      } catch (error) {
        // Another program reads or writes the database. The writer checks again.
        if (isLocked(error)) return newerThan(migrations, version)
        throw error
      }
    }),
    reason => (reason === undefined ? Effect.void : refuse(file, reason))
  )

/** Reads from a database and its write-ahead log on a temporary connection. */
const reading = <A>(file: string, body: (db: Database) => A): A => withReadable(file, 0, db => using(db, body))

/** Rolls back the transaction of a killed process if necessary, which takes a connection that writes, and reads. */
export const readingRecovered = <A>(file: string, body: (db: Database) => A): A => {
  try {
    return reading(file, body)
  } catch (error) {
    if (!(error instanceof SqliteError && error.code.startsWith("SQLITE_READONLY"))) throw error
    return using(openExclusive(file, 0), body)
  }
}

const using = <A>(db: Database, body: (db: Database) => A): A => {
  try {
    return body(db)
  } finally {
    db.close()
  }
}
