/**
 * Opens a database: takes its lock, creates the file if it is missing, and migrates it.
 */
import { accessSync, constants, existsSync, lstatSync, readlinkSync, renameSync, rmSync, statSync } from "node:fs"
import { dirname, join, resolve } from "node:path"
import { SqliteError } from "better-sqlite3"
import { Cause, Effect, type Scope } from "effect"
import { isLockedByAnother, Lock } from "../../DirectoryLock.ts"
import { flushDirectory, idOf, makeDirectory, makeFile } from "../../FileSystem.ts"
import { closeLast, type Format, fileOf, openForWriting } from "./Connection.ts"
import * as Epoch from "./Epoch.ts"
import { realFile } from "./Files.ts"
import {
  attempt,
  messageOf,
  readingRecovered,
  refuse,
  requireKnownMigrations,
  StoreRefused,
  versionOf
} from "./Opening/Identification.ts"
import { finish as finishRestore, isUnfinished } from "./Opening/Restored.ts"

/** A database that this process owns. */
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

/**
 * Owns all databases of a directory until the scope closes. The directory has no links to databases in others. Finishes
 * an interrupted restore.
 */
export const ownDirectory = (directory: string): Effect.Effect<void, StoreRefused, Scope.Scope> =>
  Effect.gen(function* () {
    for (const name of ["kv", "sessions"]) yield* acquireLock(join(directory, `${name}.lock`))
    yield* attempt(directory, "has a restore that cannot be finished", () => finishRestore(directory))
  })

/**
 * Gives the log of a database a new epoch, because its changes differ from those that readers know. Returns the epoch.
 * The database must not be open.
 */
export const renewEpoch = (directory: string, format: Format): Effect.Effect<string, StoreRefused> =>
  Effect.scoped(Effect.flatMap(open(directory, format), ({ file }) => renewing(file, format)))

/** The epoch of the log. It is a new one if the database differs from the record next to it. */
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
