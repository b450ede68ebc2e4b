/**
 * Opens a database: takes its lock, finds out whether the file is a database of this service and of which schema
 * version, before SQLite may change it, creates the file if it is missing, and migrates it. Other files are refused.
 */
import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  lstatSync,
  openSync,
  readlinkSync,
  readSync,
  renameSync,
  rmSync,
  statSync
} from "node:fs"
import { dirname, join, resolve } from "node:path"
import { type Database, SqliteError } from "better-sqlite3"
import { Cause, Effect, Schema, type Scope } from "effect"
import { flushDirectory, makeDirectory, makeFile } from "../../FileSystem.ts"
import {
  closeLast,
  type Format,
  fileOf,
  newerThan,
  openExclusive,
  openForWriting,
  refusalOf,
  unfinishedCopyOf,
  withReadable
} from "./Connection.ts"
import { isLocked } from "./DatabaseError.ts"
import { checkEpoch, idOf, isLockedByAnother, Lock, newEpoch, realFile } from "./Files.ts"
import { finish as finishRestore, isUnfinished } from "./Opening/Restored.ts"

export interface Opened {
  /** The database file itself, if the one in the directory is a symbolic link. */
  readonly file: string
  readonly databaseId: string | undefined
  /** The epoch of its log; `""` if it has none. */
  readonly epoch: string
  readonly lock: Lock
}

/**
 * Takes the lock of a database, creates the database if it is missing, and migrates it to the newest schema.
 *
 * The lock is in the directory of the file itself, so that all directories with a link to the file share it. A database
 * that is refused is not changed. A new one is created under another name, and renamed when it is complete.
 */
export const open = (directory: string, format: Format): Effect.Effect<Opened, StoreRefused, Scope.Scope> =>
  Effect.gen(function* () {
    const path = fileOf(directory, format)
    yield* attempt(directory, "cannot be used as the directory of a store", () => {
      makeDirectory(directory)
      accessSync(directory, constants.R_OK | constants.W_OK | constants.X_OK)
    })
    const directories = yield* attempt(path, "cannot be read", () => directoriesOf(path))
    for (const directory of directories.filter(isUnfinished)) {
      yield* Effect.scoped(ownDirectory(directory))
      yield* Effect.annotateLogs(Effect.logInfo("a restore that was not finished is finished"), { directory })
    }
    const file = yield* attempt(path, "leads to no file", () => realFile(path))
    const lock = yield* acquireLock(`${file.replace(/\.db$/, "")}.lock`)
    const restored = directories.find(isUnfinished)
    // Before this process held the lock, another one may have restored.
    if (restored !== undefined) {
      return yield* refuse(restored, "was restored in the meantime, and that is not finished: start again")
    }
    const version = yield* versionOf(file, format)
    if (version !== undefined) yield* requireKnownMigrations(file, format, version)
    if (version === undefined) yield* create(file, format)
    else if (version < format.migrations.length) yield* migrating(file, file, format)
    return { file, databaseId: idOf(file), epoch: yield* epochOf(file, format), lock }
  })

/** The directory of a database, and that of its target if it is a symbolic link. */
const directoriesOf = (path: string): ReadonlyArray<string> => {
  const directory = dirname(path)
  if (lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() !== true) return [directory]
  // The target may be missing because a restore has yet to create it.
  const target = existsSync(path) ? realFile(path) : resolve(directory, readlinkSync(path))
  return [directory, dirname(target)]
}

/** Owns all databases of a directory, which has no links, until the scope closes. Finishes an interrupted restore. */
export const ownDirectory = (directory: string): Effect.Effect<void, StoreRefused, Scope.Scope> =>
  Effect.gen(function* () {
    for (const name of ["kv", "sessions"]) yield* acquireLock(join(directory, `${name}.lock`))
    yield* attempt(directory, "has a restore that cannot be finished", () => finishRestore(directory))
  })

/** Gives the log of a database that is not open a new epoch, because its changes differ. Returns the epoch. */
export const renewEpoch = (directory: string, format: Format): Effect.Effect<string, StoreRefused> =>
  Effect.scoped(Effect.flatMap(open(directory, format), ({ file }) => renewing(file, format)))

/** The epoch of the log. It is a new one if the database differs from the record next to it. */
const epochOf = (file: string, format: Format): Effect.Effect<string, StoreRefused> =>
  Effect.gen(function* () {
    const { log } = format
    if (log === undefined) return ""
    const { difference, epoch } = yield* attempt(file, "cannot be opened", () =>
      readingRecovered(file, db => checkEpoch(db, file, log))
    )
    if (difference === undefined) return epoch
    const renewed = yield* renewing(file, format)
    if (epoch !== "") {
      yield* Effect.annotateLogs(Effect.logWarning("the change log has a new epoch: its readers have to list again"), {
        file,
        reason: difference
      })
    }
    return renewed
  })

const renewing = (file: string, format: Format): Effect.Effect<string, StoreRefused> =>
  attempt(file, "needs a new epoch, which cannot be stored", () => {
    const { log } = format
    if (log === undefined) return ""
    const db = openForWriting(file, format)
    try {
      return newEpoch(db, file, log)
    } finally {
      closeLast(db)
    }
  })

/** Owns a database until the scope closes or the process ends. */
const acquireLock = (file: string): Effect.Effect<Lock, StoreRefused, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.try({
      try: () => new Lock(file),
      catch: error => new StoreRefused({ file, reason: lockRefusal(error) })
    }),
    lock => Effect.sync(() => lock.close())
  )

const lockRefusal = (error: unknown): string => {
  const code = error instanceof SqliteError ? error.code : ""
  if (isLockedByAnother(error)) {
    const shared = "is locked: another process has this store open, and a store belongs to one process at a time"
    return `${shared}. End that process, or use another directory (DATA_DIR of the service)`
  }
  if (code.startsWith("SQLITE_READONLY"))
    return "can only be read by this user, and so locks no other process out: change its owner"
  return code === "SQLITE_NOTADB" ? "is not the lock of a store" : `cannot be locked (${messageOf(error)})`
}

const create = (file: string, format: Format): Effect.Effect<void, StoreRefused> => {
  const draft = `${file}.new`
  return Effect.gen(function* () {
    yield* attempt(draft, "cannot be removed", () => {
      for (const leftover of [draft, `${draft}-journal`, `${draft}-wal`, `${draft}-shm`])
        rmSync(leftover, { force: true })
    })
    yield* attempt(file, "cannot be created", () =>
      // An empty file that is replaced keeps its permissions.
      makeFile(draft, (statSync(file, { throwIfNoEntry: false })?.mode ?? 0o600) & 0o777)
    )
    yield* migrating(draft, file, format)
    yield* attempt(file, "cannot be created", () => {
      renameSync(draft, file)
      flushDirectory(dirname(file))
    })
  })
}

const migrating = (file: string, shown: string, format: Format): Effect.Effect<void, StoreRefused> =>
  // Most starts do not need the migrator.
  Effect.promise(() => import("./Opening/Migrations.ts")).pipe(
    Effect.flatMap(({ migrate }) => migrate(file, format)),
    Effect.catchAllCause(cause =>
      refuse(shown, `cannot be brought to schema ${format.migrations.length} (${messageOf(Cause.squash(cause))})`)
    )
  )

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
