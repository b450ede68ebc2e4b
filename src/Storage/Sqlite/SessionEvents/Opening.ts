import { closeSync, fsyncSync, openSync, readSync, statSync } from "node:fs"
import { dirname } from "node:path"
import Database from "better-sqlite3"
import { Effect, type Scope } from "effect"
import { makeDirectory } from "../Directory.ts"
import * as Lock from "../Lock.ts"
import { parseHeader } from "../Opening.ts"
import { StoreRefused } from "../StoreRefused.ts"
import { applicationId, filesIn, schemaVersion } from "./File.ts"

const schema = `
  CREATE TABLE histories (
    id INTEGER PRIMARY KEY,
    session TEXT NOT NULL UNIQUE,
    epoch TEXT NOT NULL,
    head INTEGER NOT NULL,
    trimmed INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    bookmark TEXT
  ) STRICT;
  CREATE INDEX histories_unfinished ON histories (id) WHERE bookmark IS NOT NULL;
  CREATE TABLE events (
    id INTEGER PRIMARY KEY,
    history INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    timestamp INTEGER NOT NULL,
    size INTEGER NOT NULL,
    text TEXT NOT NULL,
    UNIQUE (history, seq)
  ) STRICT;
  PRAGMA application_id = ${applicationId};
  PRAGMA user_version = ${schemaVersion};
`

const headerBytes = 100

/** Why a file cannot be the database, or `undefined`; it is only read. */
const problemOf = (file: string): string | undefined => {
  const stat = statSync(file, { throwIfNoEntry: false })
  if (stat === undefined || stat.size === 0) return undefined
  const descriptor = openSync(file, "r")
  try {
    const bytes = Buffer.alloc(headerBytes)
    const header = parseHeader(bytes.subarray(0, readSync(descriptor, bytes, 0, headerBytes, 0)))
    if (!header.isSqlite) return "is not a SQLite database"
    if (header.applicationId !== applicationId) return "is the database of another application"
    return header.userVersion > schemaVersion
      ? `has schema ${header.userVersion}, newer than the ${schemaVersion} that this version works with`
      : undefined
  } finally {
    closeSync(descriptor)
  }
}

/** Makes the tables where there are none, in one transaction with what marks the file as ours. */
const create = (file: string): void => {
  const db = new Database(file, { timeout: 0 })
  try {
    if (db.pragma("user_version", { simple: true }) === schemaVersion) return
    db.exec(`BEGIN IMMEDIATE; ${schema} COMMIT`)
  } finally {
    db.close()
  }
  const descriptor = openSync(dirname(file), "r")
  try {
    fsyncSync(descriptor)
  } finally {
    closeSync(descriptor)
  }
}

const attempt = <A>(file: string, body: () => A): Effect.Effect<A, StoreRefused> =>
  Effect.try({
    try: body,
    catch: error =>
      new StoreRefused({ file, reason: `cannot be opened (${error instanceof Error ? error.message : String(error)})` })
  })

/** Takes the lock of a directory's histories and makes sure that their database is there and ours. */
export const open = (
  directory: string
): Effect.Effect<{ readonly file: string; readonly lock: Lock.Lock }, StoreRefused, Scope.Scope> =>
  Effect.gen(function* () {
    const { database, lock: lockFile } = filesIn(directory)
    yield* attempt(directory, () => makeDirectory(directory))
    const lock = yield* Lock.acquire(lockFile)
    const problem = yield* attempt(database, () => problemOf(database))
    if (problem !== undefined) return yield* new StoreRefused({ file: database, reason: problem })
    yield* attempt(database, () => create(database))
    return { file: database, lock }
  })
