/**
 * The store in the SQLite files of a directory as the source and as the target of a copy. A process that serves the
 * store has the lock of the directory. Until a copy is finished, the file has a different application id, so that no
 * process can serve it.
 */
import { existsSync } from "node:fs"
import { join } from "node:path"
import type { Database, Statement } from "better-sqlite3"
import { Effect, Option, type Scope, Stream } from "effect"
import {
  closeLast,
  type Format,
  fileOf,
  openForReading,
  openForWriting,
  unfinishedCopyOf
} from "../Sqlite/Database/Connection.ts"
import { describe } from "../Sqlite/Database/DatabaseError.ts"
import { newEpoch, realFile } from "../Sqlite/Database/Files.ts"
import { applicationIdOf, open as openStore } from "../Sqlite/Database/Opening.ts"
import { format as kv, recount } from "../Sqlite/Kv/Schema.ts"
import { format as sessions } from "../Sqlite/SessionEvents/Tables.ts"
import {
  failed,
  notEmpty,
  otherCopy,
  pageBytes,
  pageRows,
  type Row,
  refused,
  type Source,
  type StoreCopyFailed,
  type StoreCopyRefused,
  sizeOf,
  type Table,
  type Target,
  tables
} from "./Tables.ts"

type Databases = Readonly<Record<Table["sqlite"]["database"], Database>>

export const nameOf = (directory: string): string => `sqlite:${directory}`

const attempt = <A>(body: () => A): Effect.Effect<A, StoreCopyFailed> =>
  Effect.try({ try: body, catch: error => failed(describe(error)) })

const refusedBy = (error: { readonly message: string }) => refused(error.message)

const open = (directory: string, format: Format) => Effect.mapError(openStore(directory, format), refusedBy)

/** A connection, which closes with the scope. */
const connection = (connect: () => Database, close: (db: Database) => void = db => db.close()) =>
  Effect.acquireRelease(Effect.mapError(attempt(connect), refusedBy), db => Effect.sync(() => close(db)))

const list = (items: ReadonlyArray<string>): string => items.join(", ")

const columnsOf = ({ columns, sqlite: { names = {} } }: Table): ReadonlyArray<string> =>
  columns.map(([name]) => names[name] ?? name)

/** The next rows, limited by their number and, except for the last row, by their size. */
const nextPage = (rows: Iterator<unknown>): ReadonlyArray<Row> => {
  const page: Array<Row> = []
  let bytes = 0
  while (page.length < pageRows && bytes < pageBytes) {
    const { done, value } = rows.next()
    if (done === true) break
    page.push(value as Row)
    bytes += sizeOf(value as Row)
  }
  return page
}

const pages =
  (databases: Databases) =>
  (table: Table): Stream.Stream<ReadonlyArray<Row>, StoreCopyFailed> => {
    const text = `SELECT ${list(columnsOf(table))} FROM ${table.name} ORDER BY ${table.sqlite.order}`
    // An iterator that is not at its end blocks the connection.
    const rows = Effect.acquireRelease(
      attempt(() => databases[table.sqlite.database].prepare(text).raw().iterate()),
      rows => Effect.sync(() => rows.return?.())
    )
    return Stream.unwrapScoped(
      Effect.map(rows, rows =>
        Stream.unfoldEffect(undefined, () =>
          Effect.map(
            attempt(() => nextPage(rows)),
            page => (page.length === 0 ? Option.none() : Option.some([page, undefined] as const))
          )
        )
      )
    )
  }

const count = (databases: Databases) => (table: Table) =>
  attempt(() => {
    const { count = `SELECT count(*) FROM ${table.name}`, database } = table.sqlite
    return databases[database].prepare<[], number>(count).pluck().get() ?? 0
  })

/** Opens the store in a directory for reading. It locks the directory until the scope closes and updates the schema. */
export const openSource = (directory: string): Effect.Effect<Source, StoreCopyRefused, Scope.Scope> =>
  Effect.gen(function* () {
    const name = nameOf(directory)
    if (!existsSync(fileOf(directory, kv))) return yield* refused(`${name} has no store.`)
    const { epoch, file } = yield* open(directory, kv)
    const events = yield* open(directory, sessions)
    const databases = {
      kv: yield* connection(() => openForReading(file)),
      sessions: yield* connection(() => openForReading(events.file))
    }
    return { name, id: epoch, count: count(databases), pages: pages(databases) }
  })

/** The table in which an unfinished copy stores the id of its source. */
const sourceName = "copy_of"

const isEmpty = (db: Database, database: Table["sqlite"]["database"]): boolean =>
  tables.every(
    ({ name, sqlite }) =>
      sqlite.database !== database || db.prepare(`SELECT 1 FROM ${name} LIMIT 1`).get() === undefined
  )

/**
 * Changes the application id of a file, together with other changes. It leaves WAL mode before, so that the header of
 * the file itself, which is read first, has the id.
 */
const become = (db: Database, { applicationId }: Format, change: () => void): void => {
  if (db.pragma("journal_mode = DELETE", { simple: true }) !== "delete") throw new Error(`${db.name} is in use`)
  db.transaction(() => {
    change()
    db.pragma(`application_id = ${applicationId}`)
  }).immediate()
}

/** The content of a directory before a copy. */
type Before = "nothing" | "a store" | "an unfinished copy"

const look = (directory: string) =>
  Effect.map(
    Effect.mapError(
      attempt(() => applicationIdOf(realFile(fileOf(directory, kv)))),
      ({ message }) => refused(`${nameOf(directory)}: ${message}`)
    ),
    (id): Before => {
      if (id === undefined) return "nothing"
      return id === unfinishedCopyOf(kv).applicationId ? "an unfinished copy" : "a store"
    }
  )

const refuseUnless = (isAllowed: boolean, message: string) => (isAllowed ? Effect.void : refused(message))

/**
 * Opens a store for writing in a new or empty directory, or in one with an unfinished copy of the source, which it
 * removes.
 */
export const openTarget = (directory: string, sourceId: string): Effect.Effect<Target, StoreCopyRefused, Scope.Scope> =>
  Effect.gen(function* () {
    const name = nameOf(directory)
    const unfinished = unfinishedCopyOf(kv)
    const before = yield* look(directory)
    const isRestarted = before === "an unfinished copy"
    // Events without a store are refused before the store is made.
    const openEvents = Effect.gen(function* () {
      const opened = yield* open(directory, sessions)
      const db = yield* connection(() => openForWriting(opened.file, sessions), closeLast)
      yield* refuseUnless(isRestarted || isEmpty(db, "sessions"), notEmpty(name))
      return db
    })
    const hasEvents = existsSync(join(directory, `${sessions.name}.db`))
    const early = before === "nothing" && hasEvents ? yield* openEvents : undefined
    const format = before === "a store" ? kv : unfinished
    const opened = yield* open(directory, format)
    const db = yield* connection(() => openForWriting(opened.file, format), closeLast)
    const metadata = (text: string): Statement => db.prepare(text)
    if (isRestarted) {
      const known = metadata(`SELECT value FROM metadata WHERE name = '${sourceName}'`).pluck().get() ?? sourceId
      yield* refuseUnless(known === sourceId, otherCopy(name, "remove kv.db and sessions.db"))
    } else yield* refuseUnless(isEmpty(db, "kv"), notEmpty(name))
    const databases: Databases = { kv: db, sessions: early ?? (yield* openEvents) }
    yield* Effect.mapError(
      attempt(() => {
        become(db, unfinished, () => {
          metadata("DELETE FROM metadata").run()
          metadata("INSERT INTO metadata (name, value) VALUES (?, ?)").run(sourceName, sourceId)
        })
        db.pragma("journal_mode = WAL")
        // Environments may contain passwords.
        databases.sessions.pragma("secure_delete = ON")
        for (const { name, sqlite } of tables) databases[sqlite.database].exec(`DELETE FROM ${name}`)
      }),
      refusedBy
    )
    const inserts = new Map(tables.map(table => [table, insert(databases, table)]))
    return {
      name,
      isRestarted,
      write: (table, page) => attempt(() => inserts.get(table)!(page)),
      pages: pages(databases),
      finish: attempt(() => {
        closeLast(databases.sessions)
        const epoch = newEpoch(db, opened.file, kv.log!)
        become(db, kv, () => {
          metadata("DELETE FROM metadata WHERE name = ?").run(sourceName)
          db.exec(recount)
        })
        return epoch
      })
    }
  })

const insert = (databases: Databases, table: Table): ((page: ReadonlyArray<Row>) => void) => {
  const { database, derived = [] } = table.sqlite
  const db = databases[database]
  const columns = [...columnsOf(table), ...derived.map(({ name }) => name)]
  const statement = db.prepare(`INSERT INTO ${table.name} (${list(columns)}) VALUES (${list(columns.map(() => "?"))})`)
  const all = db.transaction((page: ReadonlyArray<Row>) => {
    for (const row of page) statement.run(derived.length === 0 ? row : [...row, ...derived.map(({ of }) => of(row))])
  })
  return page => all.immediate(page)
}
