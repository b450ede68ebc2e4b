/**
 * The store in PostgreSQL as the source and as the target of a copy.
 *
 * A copy into it is one transaction, so that all of it becomes visible at once. A mark, which is committed before,
 * prevents nodes from serving the database during the copy and after an unfinished one. The lease of a node shows that
 * it runs. Locks prevent writes of nodes without a lease.
 */
import { Effect, Option, Redacted, type Scope, Stream } from "effect"
import type { Query } from "../Postgres/Database/Client.ts"
import * as Client from "../Postgres/Database/Client.ts"
import { describe } from "../Postgres/Database/DatabaseError.ts"
import { bigintArray, type Row as DatabaseRow, type Parameter, textArray } from "../Postgres/Database/Statement.ts"
import * as TableLocks from "../Postgres/Database/TableLocks.ts"
import * as Opening from "../Postgres/Opening.ts"
import { Migrations, maxNameBytes } from "../Postgres/Schema.ts"
import {
  type Cell,
  failed,
  notEmpty,
  otherCopy,
  pageBytes,
  pageRows,
  type Row,
  refused,
  type Source,
  type StoreCopyFailed,
  StoreCopyRefused,
  type Table,
  type Target,
  tables
} from "./Tables.ts"

/** The failure of a copy after it has started. */
const failedBy = (error: unknown) => failed(describe(error))

/** How long a statement may take, in milliseconds. */
const statementTimeoutMillis = 600_000

/**
 * How long the transaction of a copy may be idle, and the pause between two statements that prevent that, in
 * milliseconds. A process that hangs or has vanished sends none, and must not keep its locks. The other store may work
 * for longer: a file of SQLite is written, counted and emptied in steps during which this process does nothing else.
 */
export interface IdleLimits {
  readonly limit: number
  readonly pause: number
}

const idleLimits: IdleLimits = { limit: 300_000, pause: 15_000 }

/** How long a copy waits for its locks, so that writers can end, in milliseconds. */
const lockTimeoutMillis = 10_000

/** The name of the connection in `pg_stat_activity`, and in messages about its locks. */
const programName = "causeway migrate-store"

/** Returns the address without user, password and parameters. */
export const nameOf = (url: Redacted.Redacted): string => {
  const { host, pathname } = new URL(Redacted.value(url))
  return `postgres://${host}${pathname}`
}

/** Takes no snapshot, and has no effect. */
const nothing = "SHOW server_version"

/** Runs statements on one connection, until the scope closes. Its transactions stay open while the other store works. */
const connect = (
  url: Redacted.Redacted,
  { limit, pause }: IdleLimits
): Effect.Effect<Query, StoreCopyRefused, Scope.Scope> =>
  Effect.gen(function* () {
    const client = yield* Effect.mapError(
      Client.scoped(url, { statementTimeout: 0, idleTimeout: limit, applicationName: programName }),
      ({ reason }) => refused(`${nameOf(url)} cannot be reached: ${reason}`)
    )
    const turn = yield* Effect.makeSemaphore(1)
    const query: Query = (text, values) =>
      turn.withPermits(1)(Client.queryOn(client, text, values, statementTimeoutMillis))
    // The next statement of the copy reports a failure.
    const keepBusy = Effect.ignore(turn.withPermitsIfAvailable(1)(Client.queryOn(client, nothing)))
    yield* Effect.forkScoped(Effect.interruptible(Effect.forever(Effect.delay(keepBusy, pause))))
    return query
  })

/** Turns failures before the first row is copied into `StoreCopyRefused`. */
const refusing =
  (url: Redacted.Redacted) =>
  <A, R>(
    effect: Effect.Effect<
      A,
      StoreCopyRefused | Opening.StoreRefused | TableLocks.TablesInUse | { readonly reason: string },
      R
    >
  ) =>
    Effect.mapError(effect, error => {
      if (error instanceof StoreCopyRefused) return error
      const reason = "reason" in error ? error.reason : error.message
      return refused(`${nameOf(url)}: ${reason}`)
    })

/** `SET` takes no snapshot, so that the later one sees all that is committed before the locks. */
const settings = ({ limit }: IdleLimits) => [
  "SET LOCAL client_encoding = 'UTF8'",
  "SET LOCAL statement_timeout = 0",
  `SET LOCAL lock_timeout = ${lockTimeoutMillis}`,
  `SET LOCAL idle_in_transaction_session_timeout = ${limit}`,
  // Pages are read by an index. A new table has no statistics, so that the planner does not know that it is large.
  "SET LOCAL enable_seqscan = off"
]

/** Settings that not every server has, or whose stricter values stay. These statements take a snapshot. */
const laterSettings = [
  "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'",
  "SELECT set_config('transaction_timeout', '0', true) WHERE current_setting('transaction_timeout', true) IS NOT NULL"
]

const inTurn = (query: Query, statements: ReadonlyArray<string>) =>
  Effect.forEach(statements, text => query(text), { discard: true })

/** Begins a transaction. The session has the same time limits, which apply between these statements. */
const begin = (query: Query, isolation: "READ COMMITTED" | "REPEATABLE READ", idle: IdleLimits) =>
  inTurn(query, [`BEGIN ISOLATION LEVEL ${isolation} READ WRITE`, ...settings(idle)])

/**
 * The tables whose locks exclude all writers: every writer of entries locks a row of `log`, every writer of sessions
 * writes to `histories` or `launch_configurations`, and nodes renew their leases in `nodes`.
 */
const writtenTables = ["histories", "launch_configurations", "log", "nodes"]

const lockAll = (query: Query, tables: ReadonlyArray<string>, mode: TableLocks.Mode) =>
  TableLocks.lock(
    query,
    tables.map(table => [table, mode] as const),
    lockTimeoutMillis
  )

/** Excludes all writers until the end of the transaction. Then it refuses a database that a node serves. */
const lockWriters = (query: Query, name: string, tables: ReadonlyArray<string> = []) =>
  Effect.zipRight(
    lockAll(query, [...tables, ...writtenTables], "EXCLUSIVE"),
    Effect.zipRight(inTurn(query, laterSettings), refuseServed(query, name))
  )

/** Refuses a database that a node serves. */
const refuseServed = (query: Query, name: string) =>
  Effect.flatMap(
    query(
      `SELECT count(*), coalesce(ceil(extract(epoch FROM max(expires_at) - clock_timestamp())), 0)::int
       FROM causeway.nodes WHERE expires_at > clock_timestamp()`
    ),
    ([row]) => {
      const [nodes, seconds] = row as readonly [number, number]
      if (nodes === 0) return Effect.void
      return refused(
        `${name} is served by ${nodes === 1 ? "a node" : `${nodes} nodes`}. Stop all nodes and try again; ` +
          `the lease of one that was killed ends within ${seconds} s.`
      )
    }
  )

const row = (query: Query, text: string, values: ReadonlyArray<Parameter> = []) =>
  Effect.map(query(text, values), ([first]) => first ?? [])

/** Opens the store in a database for reading. No process can write to it until the scope closes. */
export const openSource = (
  url: Redacted.Redacted,
  idle = idleLimits
): Effect.Effect<Source, StoreCopyRefused, Scope.Scope> =>
  Effect.gen(function* () {
    const query = yield* connect(url, idle)
    const name = nameOf(url)
    const [hasStore] = yield* row(query, "SELECT to_regclass('causeway.migrations') IS NOT NULL")
    if (hasStore !== true) return yield* refused(`${name} has no store.`)
    yield* Opening.open(url)
    yield* refuseServed(query, name)
    yield* begin(query, "REPEATABLE READ", idle)
    // The snapshot is taken after the locks. From then on, no newer node can change the schema.
    yield* lockWriters(query, name, ["migrations"])
    const [version] = yield* row(query, "SELECT max(version) FROM causeway.migrations")
    if (version !== (yield* Migrations).length) {
      return yield* refused(`Another process has changed the schema of ${name}. Try again.`)
    }
    const [id] = yield* row(query, "SELECT epoch FROM causeway.log")
    return {
      name,
      id: String(id),
      count: (table: Table) =>
        Effect.mapBoth(row(query, `SELECT count(*) FROM causeway.${table.name}`), {
          onFailure: failedBy,
          onSuccess: ([count]) => Number(count)
        }),
      pages: pages(query)
    }
  }).pipe(refusing(url))

const isEmptyText = `SELECT ${tables.map(({ name }) => `NOT EXISTS (SELECT FROM causeway.${name})`).join(" AND ")}`

const refuseFull = (query: Query, name: string) =>
  Effect.flatMap(row(query, isEmptyText), ([isEmpty]) => (isEmpty === true ? Effect.void : refused(notEmpty(name))))

const alreadyCopying = (name: string) => refused(`Another process is copying a store into ${name}.`)

const removeMark = (query: Query) =>
  query("DELETE FROM causeway.migrations WHERE version = $1", [Opening.unfinishedCopy])

/** Makes the schema and the mark, in a separate transaction. Returns whether the database had an unfinished copy. */
const prepare = (query: Query, name: string, sourceId: string, idle: IdleLimits) =>
  Effect.gen(function* () {
    yield* Opening.check(query)
    yield* begin(query, "READ COMMITTED", idle)
    const copied = yield* Opening.migrate(query, { mayBeUnfinished: true })
    yield* refuseServed(query, name)
    if (copied === undefined) {
      yield* lockWriters(query, name)
      yield* refuseFull(query, name)
      yield* query("INSERT INTO causeway.migrations (version, name) VALUES ($1, $2)", [
        Opening.unfinishedCopy,
        sourceId
      ])
    } else {
      const rows = yield* query("SELECT name FROM causeway.migrations WHERE version = $1 FOR UPDATE SKIP LOCKED", [
        Opening.unfinishedCopy
      ])
      if (rows.length === 0) return yield* alreadyCopying(name)
      if (copied !== sourceId) {
        return yield* refused(otherCopy(name, "drop the schema causeway"))
      }
    }
    yield* query("COMMIT")
    return copied !== undefined
  })

/** Opens an empty database for writing, or one with an unfinished copy of the source, which it removes. */
export const openTarget = (
  url: Redacted.Redacted,
  sourceId: string,
  idle = idleLimits
): Effect.Effect<Target, StoreCopyRefused, Scope.Scope> =>
  Effect.gen(function* () {
    const query = yield* connect(url, idle)
    const name = nameOf(url)
    const isRestarted = yield* prepare(query, name, sourceId, idle)
    yield* begin(query, "READ COMMITTED", idle)
    // Another process that copies has locked the mark or removed it.
    const marks = yield* query(
      "SELECT FROM causeway.migrations WHERE version = $1 AND name = $2 FOR UPDATE SKIP LOCKED",
      [Opening.unfinishedCopy, sourceId]
    )
    if (marks.length === 0) return yield* alreadyCopying(name)
    // A node that was open before the mark was made may have taken a lease, or have written, since then.
    const unmarked = Effect.zipRight(removeMark(query), query("COMMIT"))
    yield* lockWriters(query, name).pipe(
      Effect.tapErrorTag("StoreCopyRefused", () => (isRestarted ? Effect.void : unmarked))
    )
    yield* refuseFull(query, name).pipe(Effect.tapErrorTag("StoreCopyRefused", () => unmarked))
    const emptied = ["commits", ...tables.map(({ name }) => name)]
    yield* lockAll(query, ["log", ...emptied], "ACCESS EXCLUSIVE")
    yield* query(`TRUNCATE ${emptied.map(name => `causeway.${name}`).join(", ")}`)
    // Copied records may be before the positions of those that the database had.
    yield* query("UPDATE causeway.positions SET up_to = 0 WHERE name IN ('commits', 'events', 'idempotency')")
    return {
      name,
      isRestarted,
      write: write(query),
      pages: pages(query),
      finish: Effect.gen(function* () {
        yield* query(
          `UPDATE causeway.log SET trimmed_seq = coalesce((SELECT c.seq - 1 FROM causeway.changes c ORDER BY c.seq LIMIT 1), 0)`
        )
        yield* query(
          `SELECT setval(pg_get_serial_sequence('causeway.histories', 'id'), coalesce(max(id), 0) + 1, false)
           FROM causeway.histories`
        )
        yield* query(`ANALYZE ${tables.map(({ name }) => `causeway.${name}`).join(", ")}`)
        const [epoch] = yield* row(query, "SELECT causeway.renew_epoch()")
        yield* removeMark(query)
        yield* query("COMMIT")
        return String(epoch)
      }).pipe(Effect.mapError(failedBy))
    }
  }).pipe(refusing(url))

const list = (items: ReadonlyArray<readonly [name: string, ...rest: ReadonlyArray<unknown>]>): string =>
  items.map(([name]) => name).join(", ")

/**
 * A page of rows, limited by their number and, except for its last row, by their size. The columns of the order follow
 * those of the table. The first page has no lower bound: an empty text, which a row may have, is the least value.
 */
const pageText = ({ columns, name, postgres: { order } }: Table, isFirst: boolean): string => {
  const size = columns.map(([column, type]) => (type === "text" ? `coalesce(octet_length(${column}), 0)` : "8"))
  const after = order.map(([, type], index) => `$${index + 1}::${type}`)
  const keys = list(order)
  return `SELECT ${list(columns)}, ${keys} FROM (
    SELECT *, sum(size_of_row) OVER (ORDER BY ${keys} ROWS UNBOUNDED PRECEDING) - size_of_row AS size_before FROM (
      SELECT *, ${size.join(" + ")} AS size_of_row FROM causeway.${name}
      ${isFirst ? "" : `WHERE (${keys}) > (${after.join(", ")})`} ORDER BY ${keys} LIMIT ${pageRows}
    ) ahead
  ) sized WHERE size_before < ${pageBytes} ORDER BY ${keys}`
}

const read = ({ columns, postgres: { encoded } }: Table, row: DatabaseRow): Row => {
  const cells = row.slice(0, columns.length) as ReadonlyArray<Cell>
  return encoded === undefined
    ? cells
    : cells.map((cell, index) => (columns[index]![0] === encoded.name ? encoded.read(cell) : cell))
}

/** The rows of a table, in pages of limited size. */
export const pages =
  (query: Query) =>
  (table: Table): Stream.Stream<ReadonlyArray<Row>, StoreCopyFailed> => {
    const first = pageText(table, true)
    const later = pageText(table, false)
    const beginning: ReadonlyArray<Parameter> = []
    return Stream.unfoldEffect(beginning, after =>
      Effect.mapBoth(query(after === beginning ? first : later, after), {
        onFailure: failedBy,
        onSuccess: rows =>
          Option.map(Option.fromNullable(rows.at(-1)), last => {
            const next = last.slice(table.columns.length) as ReadonlyArray<Parameter>
            return [rows.map(row => read(table, row)), next] as const
          })
      })
    )
  }

const insertText = ({ columns, name, postgres: { overriding } }: Table): string => {
  const arrays = columns.map(([, type], index) => `$${index + 1}::${type}[]`)
  return `INSERT INTO causeway.${name} (${list(columns)}) ${overriding ?? ""} SELECT * FROM unnest(${arrays.join(", ")})`
}

/** Refuses names that are too long for an index, with a message that has the names; that of the database has not. */
const refuseLongNames = ({ columns, postgres: { names } }: Table, page: ReadonlyArray<Row>) => {
  if (names === undefined) return Effect.void
  const indexes = names.map(name => columns.findIndex(([column]) => column === name))
  for (const row of page) {
    const texts = indexes.map(index => String(row[index]))
    const bytes = texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0)
    if (bytes > maxNameBytes) {
      return failed(
        `The names ${texts.map(text => JSON.stringify(text.slice(0, 80))).join(" and ")} have ${bytes} bytes; ` +
          `an index of PostgreSQL can hold ${maxNameBytes} of both together.`
      )
    }
  }
  return Effect.void
}

/** Writes a page of rows to a table. */
export const write =
  (query: Query) =>
  (table: Table, page: ReadonlyArray<Row>): Effect.Effect<void, StoreCopyFailed> =>
    Effect.suspend(() => {
      const { encoded } = table.postgres
      const cell = (row: Row, index: number): Cell =>
        table.columns[index]![0] === encoded?.name ? encoded.of(row) : row[index]!
      const parameters = table.columns.map(([, type], index) =>
        type === "text"
          ? textArray(page.map(row => cell(row, index) as string | null))
          : bigintArray(page.map(row => cell(row, index) as number | null))
      )
      return Effect.zipRight(
        refuseLongNames(table, page),
        Effect.mapError(query(insertText(table), parameters), failedBy)
      )
    })
