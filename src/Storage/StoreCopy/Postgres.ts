/**
 * The store in PostgreSQL as the source and as the target of a copy.
 *
 * A copy into it is one transaction, so that nothing of it is seen before all of it is. A mark that is committed before
 * keeps nodes from serving the database meanwhile, and after a copy that was not finished. The lease of a node tells that
 * it runs. Locks keep those from writing that have no lease.
 */
import { Effect, Option, Redacted, type Scope, Stream } from "effect"
import pg from "pg"
import { clientConfig, connectClient, type Query, queryOn } from "../Postgres/Database/Client.ts"
import { describe } from "../Postgres/Database/DatabaseError.ts"
import * as Encoding from "../Postgres/Database/Encoding.ts"
import type { Row as DatabaseRow, Parameter } from "../Postgres/Database/Statement.ts"
import * as TableLocks from "../Postgres/Database/TableLocks.ts"
import * as Opening from "../Postgres/Opening.ts"
import { maxNameBytes, migrations } from "../Postgres/Schema.ts"
import { notEmpty, otherCopy, type Source, StoreCopyFailed, StoreCopyRefused, type Target } from "./Port.ts"
import { type Cell, pageBytes, pageRows, type Row, type Table, tables } from "./Tables.ts"

/** Milliseconds that a statement may take. */
const statementTimeout = 600_000

/** Milliseconds that writers have to end once a copy asks for its locks. */
const lockPatience = 10_000

/** How the database and those who wait for a copy know it. */
const programName = "causeway migrate-store"

/** The address without user, password and parameters. */
export const nameOf = (url: Redacted.Redacted): string => {
  const { host, pathname } = new URL(Redacted.value(url))
  return `postgres://${host}${pathname}`
}

const failed = (error: unknown) => new StoreCopyFailed({ message: describe(error) })

/** Statements on a connection of its own, until the scope closes. */
const connect = (url: Redacted.Redacted): Effect.Effect<Query, StoreCopyRefused, Scope.Scope> =>
  Effect.gen(function* () {
    const client = yield* Effect.acquireRelease(
      Effect.sync(() =>
        new pg.Client({ ...clientConfig(url), fallback_application_name: programName }).on("error", () => undefined)
      ),
      // Without its socket a client may wait for ever.
      client => Effect.sync(() => void client.end().catch(() => undefined))
    )
    yield* Effect.tryPromise({
      try: () => connectClient(client, 0),
      catch: error => new StoreCopyRefused({ message: `${nameOf(url)} cannot be reached: ${describe(error)}` })
    })
    return (text, values) => queryOn(client, text, values, statementTimeout)
  })

/** What was wrong before anything was copied. */
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
      return new StoreCopyRefused({ message: `${nameOf(url)}: ${reason}` })
    })

/** `SET` takes no snapshot, so that what is committed before the locks is seen. */
const settings = [
  "SET LOCAL client_encoding = 'UTF8'",
  "SET LOCAL statement_timeout = 0",
  `SET LOCAL lock_timeout = ${lockPatience}`,
  "SET LOCAL idle_in_transaction_session_timeout = 0",
  // Pages are read by an index; a new table has no statistics to tell that it is large.
  "SET LOCAL enable_seqscan = off"
]

/** Settings that not every server has, or that are kept where they are stricter. These statements take a snapshot. */
const laterSettings = [
  "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'",
  "SELECT set_config('transaction_timeout', '0', true) WHERE current_setting('transaction_timeout', true) IS NOT NULL"
]

const inTurn = (query: Query, statements: ReadonlyArray<string>) =>
  Effect.forEach(statements, text => query(text), { discard: true })

/** Begins a transaction. */
const begin = (query: Query, isolation: "READ COMMITTED" | "REPEATABLE READ") =>
  inTurn(query, [`BEGIN ISOLATION LEVEL ${isolation} READ WRITE`, ...settings])

/**
 * Every writer of entries locks a row of `log`, every writer of sessions writes to `histories` or
 * `launch_configurations`, and nodes renew their leases in `nodes`.
 */
const writtenTables = ["histories", "launch_configurations", "log", "nodes"]

const lockAll = (query: Query, tables: ReadonlyArray<string>, mode: TableLocks.Mode) =>
  TableLocks.lock(
    query,
    tables.map(table => [table, mode] as const),
    lockPatience
  )

/** Keeps all writers off from here to the end of the transaction, and then refuses a database that a node serves. */
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
      return new StoreCopyRefused({
        message:
          `${name} is served by ${nodes === 1 ? "a node" : `${nodes} nodes`}. Stop all nodes and try again; ` +
          `the lease of one that was killed ends within ${seconds} s.`
      })
    }
  )

const row = (query: Query, text: string, values: ReadonlyArray<Parameter> = []) =>
  Effect.map(query(text, values), ([first]) => first ?? [])

const list = (items: ReadonlyArray<readonly [name: string, ...rest: ReadonlyArray<unknown>]>): string =>
  items.map(([name]) => name).join(", ")

/**
 * A page of rows of a limited number and, but for the last of them, a limited size. The columns of the order follow.
 * The first page has no lower bound: no value of a text column is less than the empty text, which a row may have.
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

const pages =
  (query: Query) =>
  (table: Table): Stream.Stream<ReadonlyArray<Row>, StoreCopyFailed> => {
    const first = pageText(table, true)
    const later = pageText(table, false)
    const beginning: ReadonlyArray<Parameter> = []
    return Stream.unfoldEffect(beginning, after =>
      Effect.mapBoth(query(after === beginning ? first : later, after), {
        onFailure: failed,
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

/** Names what an index cannot hold, as the database would not. */
const refuseLongNames = ({ columns, postgres: { names } }: Table, page: ReadonlyArray<Row>) => {
  if (names === undefined) return Effect.void
  const indexes = names.map(name => columns.findIndex(([column]) => column === name))
  for (const row of page) {
    const texts = indexes.map(index => String(row[index]))
    const bytes = texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0)
    if (bytes > maxNameBytes) {
      return new StoreCopyFailed({
        message:
          `The names ${texts.map(text => JSON.stringify(text.slice(0, 80))).join(" and ")} have ${bytes} bytes; ` +
          `an index of PostgreSQL can hold ${maxNameBytes} of both together.`
      })
    }
  }
  return Effect.void
}

const write =
  (query: Query) =>
  (table: Table, page: ReadonlyArray<Row>): Effect.Effect<void, StoreCopyFailed> =>
    Effect.suspend(() => {
      const { encoded } = table.postgres
      const cell = (row: Row, index: number): Cell =>
        table.columns[index]![0] === encoded?.name ? encoded.of(row) : row[index]!
      const parameters = table.columns.map(([, type], index) =>
        type === "text"
          ? Encoding.texts(page.map(row => cell(row, index) as string | null))
          : Encoding.bigints(page.map(row => cell(row, index) as number | null))
      )
      return Effect.zipRight(
        refuseLongNames(table, page),
        Effect.mapError(query(insertText(table), parameters), failed)
      )
    })

/** The store in a database that nobody writes to until the scope closes. */
export const openSource = (url: Redacted.Redacted): Effect.Effect<Source, StoreCopyRefused, Scope.Scope> =>
  Effect.gen(function* () {
    const query = yield* connect(url)
    const name = nameOf(url)
    const [hasStore] = yield* row(query, "SELECT to_regclass('causeway.migrations') IS NOT NULL")
    if (hasStore !== true) return yield* new StoreCopyRefused({ message: `${name} has no store.` })
    yield* Opening.open(url)
    yield* refuseServed(query, name)
    yield* begin(query, "REPEATABLE READ")
    // The snapshot is taken once the locks are held. No newer node changes the schema after that.
    yield* lockWriters(query, name, ["migrations"])
    const [version] = yield* row(query, "SELECT max(version) FROM causeway.migrations")
    if (version !== migrations.length) {
      return yield* new StoreCopyRefused({ message: `Another process has changed the schema of ${name}. Try again.` })
    }
    const [id] = yield* row(query, "SELECT epoch FROM causeway.log")
    return {
      name,
      id: String(id),
      count: (table: Table) =>
        Effect.mapBoth(row(query, `SELECT count(*) FROM causeway.${table.name}`), {
          onFailure: failed,
          onSuccess: ([count]) => Number(count)
        }),
      pages: pages(query)
    }
  }).pipe(refusing(url))

const isEmptyText = `SELECT ${tables.map(({ name }) => `NOT EXISTS (SELECT FROM causeway.${name})`).join(" AND ")}`

const refuseFull = (query: Query, name: string) =>
  Effect.flatMap(row(query, isEmptyText), ([isEmpty]) =>
    isEmpty === true ? Effect.void : new StoreCopyRefused({ message: notEmpty(name) })
  )

const removeMark = (query: Query) =>
  query("DELETE FROM causeway.migrations WHERE version = $1", [Opening.unfinishedCopy])

/** Makes the schema and the mark, in a transaction of its own. Returns whether there was an unfinished copy. */
const prepare = (query: Query, name: string, sourceId: string) =>
  Effect.gen(function* () {
    yield* Opening.check(query)
    yield* begin(query, "READ COMMITTED")
    const copied = yield* Opening.migrate(query, true)
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
      if (rows.length === 0) {
        return yield* new StoreCopyRefused({ message: `Another process is copying a store into ${name}.` })
      }
      if (copied !== sourceId) {
        return yield* new StoreCopyRefused({ message: otherCopy(name, "drop the schema causeway") })
      }
    }
    yield* query("COMMIT")
    return copied !== undefined
  })

/** An empty database, or one with an unfinished copy of the source, which is removed. */
export const openTarget = (
  url: Redacted.Redacted,
  sourceId: string
): Effect.Effect<Target, StoreCopyRefused, Scope.Scope> =>
  Effect.gen(function* () {
    const query = yield* connect(url)
    const name = nameOf(url)
    const isRestarted = yield* prepare(query, name, sourceId)
    yield* begin(query, "READ COMMITTED")
    // Another process that copies waits here, or finds the mark removed.
    const marks = yield* query(
      "SELECT FROM causeway.migrations WHERE version = $1 AND name = $2 FOR UPDATE SKIP LOCKED",
      [Opening.unfinishedCopy, sourceId]
    )
    if (marks.length === 0) {
      return yield* new StoreCopyRefused({ message: `Another process is copying a store into ${name}.` })
    }
    // A node that was open before the mark was there may have had a lease, or have written, since.
    const unmarked = Effect.zipRight(removeMark(query), query("COMMIT"))
    yield* lockWriters(query, name).pipe(
      Effect.tapErrorTag("StoreCopyRefused", () => (isRestarted ? Effect.void : unmarked))
    )
    yield* refuseFull(query, name).pipe(Effect.tapErrorTag("StoreCopyRefused", () => unmarked))
    const emptied = ["commits", ...tables.map(({ name }) => name)]
    yield* lockAll(query, ["log", ...emptied], "ACCESS EXCLUSIVE")
    yield* query(`TRUNCATE ${emptied.map(name => `causeway.${name}`).join(", ")}`)
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
      }).pipe(Effect.mapError(failed))
    }
  }).pipe(refusing(url))
