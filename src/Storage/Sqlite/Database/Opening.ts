/**
 * Opens a database: takes its lock, creates the file where there is none, and migrates it.
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
import { Lock } from "../../DirectoryLock.ts"
import { flushDirectory, idOf, makeDirectory, makeFile } from "../../FileSystem.ts"
import { differenceIn } from "./AppliedMigrations.ts"
import {
  closeLast,
  type Format,
  fileOf,
  openExclusive,
  openForReading,
  openForWriting,
  unfinishedCopyOf
} from "./Connection.ts"
import { isLocked } from "./DatabaseError.ts"
import * as Epoch from "./Epoch.ts"
import { hasRoom, realFile } from "./Files.ts"
import { finish as finishRestore, isUnfinished } from "./Restored.ts"

/** The database cannot be opened; it was not changed. */
export class StoreRefused extends Schema.TaggedError<StoreRefused>()("StoreRefused", {
  /** The file or directory that prevents it. */
  file: Schema.String,
  /** Why, as the end of a sentence that begins with the file's name. */
  reason: Schema.String
}) {
  override get message(): string {
    return `${this.file} ${this.reason}`
  }
  /** The sentence is for the user of the program that it ends, to whom the place in this code says nothing. */
  override readonly stack = `${this.name}: ${this.message}`
}

const headerBytes = 100
const magic = "SQLite format 3\u0000"

/** What the first 100 bytes of a database say (https://www.sqlite.org/fileformat.html, 1.3). */
interface Header {
  readonly isSqlite: boolean
  readonly applicationId: number
  readonly userVersion: number
}

/** Reads a header from bytes, which may be fewer than there should be. */
const parseHeader = (bytes: Buffer): Header =>
  bytes.length < headerBytes || bytes.toString("latin1", 0, magic.length) !== magic
    ? { isSqlite: false, applicationId: 0, userVersion: 0 }
    : { isSqlite: true, applicationId: bytes.readUInt32BE(68), userVersion: bytes.readUInt32BE(60) }

/** A database that belongs to this process. */
export interface Opened {
  /** The database file itself, where the one in the directory is a symbolic link. */
  readonly file: string
  readonly databaseId: string | undefined
  /** The epoch of its log; `""` where it has none. */
  readonly epoch: string
  readonly lock: Lock
}

/**
 * Takes the lock of a database, creates the database where there is none, and migrates it to the newest schema.
 *
 * The lock lies beside the file itself, so that it is the same whichever directory has a link to the file. A database
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
    // Until there was the lock, nothing kept another process from it.
    if (restored !== undefined) {
      return yield* refuse(restored, "was restored meanwhile, and that is not finished: start again")
    }
    const version = yield* versionOf(file, format)
    if (version !== undefined) yield* requireKnownMigrations(file, format, version)
    if (version === undefined) yield* create(file, format)
    else if (version < format.schemaVersion) yield* migrating(file, file, format)
    return { file, databaseId: idOf(file), epoch: yield* epochOf(file, format), lock }
  })

/** The directory of a database, and that of the target where it is a symbolic link. */
const directoriesOf = (path: string): ReadonlyArray<string> => {
  const directory = dirname(path)
  if (lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink() !== true) return [directory]
  // The target may be what is to be restored there.
  const target = existsSync(path) ? realFile(path) : resolve(directory, readlinkSync(path))
  return [directory, dirname(target)]
}

/**
 * Owns all databases of a directory until the scope closes, which has no links to databases elsewhere. A restore that was
 * not finished there is finished.
 */
export const ownDirectory = (directory: string): Effect.Effect<void, StoreRefused, Scope.Scope> =>
  Effect.gen(function* () {
    for (const name of ["kv", "sessions"]) yield* acquireLock(join(directory, `${name}.lock`))
    yield* attempt(directory, "has a restore that cannot be finished", () => finishRestore(directory))
  })

/**
 * Gives the log of a database that nobody has open a new epoch, as one whose changes are not those that its readers
 * know. Returns it.
 */
export const renewEpoch = (directory: string, format: Format): Effect.Effect<string, StoreRefused> =>
  Effect.scoped(Effect.flatMap(open(directory, format), ({ file }) => renewing(file, format)))

/** The epoch of the log, which is a new one where the database differs from the record beside it. */
const epochOf = (file: string, format: Format): Effect.Effect<string, StoreRefused> =>
  Effect.gen(function* () {
    const { log } = format
    if (log === undefined) return ""
    const { difference, epoch } = yield* attempt(file, "cannot be opened", () =>
      readingRecovered(file, db => Epoch.check(db, file, log))
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
      return Epoch.renew(db, file, log)
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
  if (code.startsWith("SQLITE_BUSY")) {
    return "is locked: another process has this store open, and a store belongs to one process at a time"
  }
  if (code.startsWith("SQLITE_READONLY"))
    return "can only be read by this user, and so locks nobody out: change its owner"
  return code === "SQLITE_NOTADB" ? "is not the lock of a store" : `cannot be locked (${messageOf(error)})`
}

/** The schema version of a database, or `undefined` where there is none. Refuses files that are not ours. */
const versionOf = (file: string, format: Format): Effect.Effect<number | undefined, StoreRefused> =>
  Effect.gen(function* () {
    // SQLite opens the file only when its header is known to be ours.
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
      return yield* refuse(file, "has several names (hard links), and each would have a write-ahead log of its own")
    }
    const { schemaVersion } = format
    if (header.userVersion > schemaVersion) return yield* refuseNewer(file, header.userVersion, schemaVersion)
    yield* attempt(file, "cannot be written", () => accessSync(file, constants.R_OK | constants.W_OK))
    if (log === undefined || log.size === 0) return header.userVersion
    // The header may lag behind the log.
    const version = yield* attempt(file, "cannot be opened", () =>
      reading(file, db => Number(db.pragma("user_version", { simple: true })))
    )
    return version > schemaVersion ? yield* refuseNewer(file, version, schemaVersion) : version
  })

/** Refuses a database whose migrations are others than those that the numbers stand for here. */
const requireKnownMigrations = (file: string, { migrationNames }: Format, version: number) =>
  Effect.flatMap(
    attempt(file, "cannot be opened", () => {
      try {
        return readingRecovered(file, db => differenceIn(db, migrationNames, version))
      } catch (error) {
        // Another program reads or writes it: the writer looks again.
        if (isLocked(error)) return undefined
        throw error
      }
    }),
    difference =>
      difference === undefined
        ? Effect.void
        : refuse(file, `was written by a version with other migrations: ${difference}`)
  )

const unfinished = "has a copy of another store that was not finished: run causeway migrate-store again"

/** What marks the file of a database; `undefined` where there is none. Throws where it cannot be read. */
export const applicationIdOf = (file: string): number | undefined => readHeader(file)?.applicationId

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

/** Reads from a database with its write-ahead log, on a connection for this alone. */
const reading = <A>(file: string, body: (db: Database) => A): A => {
  try {
    return using(openForReading(file, 0), body)
  } catch (error) {
    if (hasRoom(dirname(file))) throw error
    return using(openExclusive(file, 0), body)
  }
}

/** The same, after the transaction of a process that was killed is rolled back, which takes a connection that writes. */
const readingRecovered = <A>(file: string, body: (db: Database) => A): A => {
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

const create = (file: string, format: Format): Effect.Effect<void, StoreRefused> => {
  const draft = `${file}.new`
  return Effect.gen(function* () {
    yield* attempt(draft, "cannot be removed", () => {
      for (const leftover of [draft, `${draft}-journal`, `${draft}-wal`, `${draft}-shm`])
        rmSync(leftover, { force: true })
    })
    yield* attempt(file, "cannot be created", () =>
      // An empty file in its place keeps what its owner allowed others.
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
  Effect.promise(() => Promise.all([import("./Migrations.ts"), format.load()])).pipe(
    Effect.flatMap(([{ migrate }, { migrations }]) => migrate(file, format.applicationId, migrations)),
    Effect.catchAllCause(cause =>
      refuse(shown, `cannot be brought to schema ${format.schemaVersion} (${messageOf(Cause.squash(cause))})`)
    )
  )

const refuse = (file: string, reason: string) => Effect.fail(new StoreRefused({ file, reason }))

const refuseNewer = (file: string, version: number, known: number) =>
  refuse(file, `has schema ${version}, newer than the ${known} that this version works with`)

const attempt = <A>(file: string, problem: string, body: () => A): Effect.Effect<A, StoreRefused> =>
  Effect.try({
    try: body,
    catch: error => new StoreRefused({ file, reason: `${problem} (${messageOf(error)})` })
  })

const messageOf = (error: unknown): string => {
  if (!(error instanceof Error)) return String(error)
  return error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : error.message
}
