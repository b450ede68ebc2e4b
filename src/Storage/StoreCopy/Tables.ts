/**
 * What a copy of a store consists of: the tables and how each database stores them, and the ports that it reads from and
 * writes to. Other tables are not copied; a test compares these with the schemas.
 */
import { hash } from "node:crypto"
import { type Effect, Schema, type Stream } from "effect"
import { tenantOf } from "../../Kv/Entry.ts"
import { storedId } from "../Postgres/SessionEvents/SessionQueries.ts"

/** A value of a column. */
export type Cell = string | number | null

/** The cells of the columns of a table, in their order. */
export type Row = ReadonlyArray<Cell>

/** A column that a database derives from the others, or stores in another form. */
interface Stored {
  readonly name: string
  readonly of: (row: Row) => Cell
}

/** A table that is copied, with its form in each database. */
export interface Table {
  readonly name: string
  readonly columns: Columns
  readonly sqlite: {
    readonly database: "kv" | "sessions"
    /** Columns with another name. */
    readonly names?: Readonly<Record<string, string>>
    readonly derived?: ReadonlyArray<Stored>
    /** The order in which rows are read, and written in the other database. */
    readonly order: string
    /** A query for the number of rows that needs no count. */
    readonly count?: string
  }
  readonly postgres: {
    /** The order in which rows are read: columns that identify each row. An index starts with the first of them. */
    readonly order: Columns
    /** A column that is stored in another form, and how its cell is read. */
    readonly encoded?: Stored & { readonly read: (cell: Cell) => Cell }
    /** The part of an `INSERT` after the columns. */
    readonly overriding?: "OVERRIDING SYSTEM VALUE"
    /** Columns that share an index. */
    readonly names?: ReadonlyArray<string>
  }
}

type Columns = ReadonlyArray<readonly [name: string, type: "text" | "bigint"]>

const texts = (...names: ReadonlyArray<string>): Columns => names.map(name => [name, "text"])

const numbers = (...names: ReadonlyArray<string>): Columns => names.map(name => [name, "bigint"])

const names = texts("namespace", "key")

const number = (cell: Cell | undefined): number => Number(cell !== null)

/** All tables, in the order in which they are copied. */
export const tables: ReadonlyArray<Table> = [
  {
    name: "entries",
    columns: [...names, ...numbers("version", "updated_at", "expires_at"), ...texts("updated_by", "value")],
    sqlite: { database: "kv", order: "namespace, key" },
    postgres: { order: names, names: ["namespace", "key"] }
  },
  {
    name: "tombstones",
    columns: [...names, ...numbers("version", "seq")],
    sqlite: { database: "kv", order: "namespace, key" },
    postgres: { order: names, names: ["namespace", "key"] }
  },
  {
    name: "changes",
    columns: [...numbers("seq", "version", "timestamp"), ...texts("op"), ...names, ...texts("actor", "value")],
    sqlite: {
      database: "kv",
      derived: [{ name: "tenant", of: row => tenantOf(String(row[4])) }],
      order: "seq",
      // Numbers have no gaps. A count would read the whole table.
      count: "SELECT coalesce(max(seq) - min(seq) + 1, 0) FROM changes"
    },
    postgres: { order: numbers("seq") }
  },
  {
    name: "remembered_writes",
    columns: [...numbers("up_to"), ...texts("id", "digest"), ...numbers("kept_at"), ...texts("outcome", "tenant")],
    sqlite: { database: "kv", order: "up_to" },
    postgres: { order: numbers("up_to") }
  },
  {
    name: "remembered_tenants",
    columns: [...texts("tenant"), ...numbers("bytes", "up_to")],
    sqlite: { database: "kv", order: "tenant" },
    postgres: { order: texts("tenant") }
  },
  {
    name: "histories",
    columns: [
      ...numbers("id"),
      ...texts("session", "epoch"),
      ...numbers("head", "trimmed", "bytes"),
      ...texts("recovery_state"),
      ...numbers("active_at", "activity")
    ],
    sqlite: { database: "sessions", order: "id" },
    postgres: { order: numbers("id"), overriding: "OVERRIDING SYSTEM VALUE" }
  },
  {
    name: "events",
    columns: [...numbers("history", "seq", "timestamp", "size"), ...texts("text")],
    // The oldest first: SQLite removes events by their ids, and stops at the first one that is not old enough.
    sqlite: { database: "sessions", order: "id" },
    postgres: { order: numbers("timestamp", "history", "seq") }
  },
  {
    name: "receipts",
    columns: [...numbers("history", "seq"), ...texts("id", "digest", "turn")],
    sqlite: { database: "sessions", names: { id: "name" }, order: "history, seq, id" },
    postgres: {
      order: numbers("history", "seq", "place"),
      encoded: { name: "id", of: row => storedId(String(row[2])), read: cell => JSON.parse(String(cell)) as string }
    }
  },
  {
    name: "launch_configurations",
    columns: texts("session", "environment", "deployment"),
    sqlite: {
      database: "sessions",
      derived: [
        { name: "has_environment", of: row => number(row[1]) },
        { name: "has_deployment", of: row => number(row[2]) }
      ],
      order: "session"
    },
    postgres: { order: texts("session") }
  }
]

/** The maximum number of rows of a page. */
export const pageRows = 2000

/** A page ends with the row that reaches this size in bytes. */
export const pageBytes = 2 * 1024 * 1024

/** Returns the approximate size of a row, in bytes. */
export const sizeOf = (row: Row): number => {
  let size = 0
  for (const cell of row) size += typeof cell === "string" ? cell.length : 8
  return size
}

/** A digest of rows in any order: the sum of their SHA-256 digests, in eight parts, and their number. */
export class Digest {
  private readonly sums = new Uint32Array(8)
  rows = 0

  add(row: Row): void {
    const digest = hash("sha256", JSON.stringify(row), "buffer")
    for (let part = 0; part < 8; part++) this.sums[part]! += digest.readUInt32LE(4 * part)
    this.rows++
  }

  toString(): string {
    return Buffer.from(this.sums.buffer).toString("hex")
  }
}

/** The copy was not started. The message has the reason. Neither store was changed. */
export class StoreCopyRefused extends Schema.TaggedError<StoreCopyRefused>()("StoreCopyRefused", {
  message: Schema.String
}) {}

/**
 * The copy was started and not finished. No node serves the target until a later copy of the same source is finished.
 */
export class StoreCopyFailed extends Schema.TaggedError<StoreCopyFailed>()("StoreCopyFailed", {
  message: Schema.String
}) {}

export const refused = (message: string) => new StoreCopyRefused({ message })

export const failed = (message: string) => new StoreCopyFailed({ message })

/** A store that no node serves while its scope is open. */
export interface Source {
  /** Its name in messages, without a password. */
  readonly name: string
  /** The epoch of its change log, which identifies the store. */
  readonly id: string
  readonly count: (table: Table) => Effect.Effect<number, StoreCopyFailed>
  /** The rows of a table in its order, in pages of limited size. */
  readonly pages: (table: Table) => Stream.Stream<ReadonlyArray<Row>, StoreCopyFailed>
}

/** An empty store that no node serves, or can serve before `finish`. */
export interface Target {
  readonly name: string
  /** Whether the target had an unfinished copy, which was removed. */
  readonly isRestarted: boolean
  readonly write: (table: Table, page: ReadonlyArray<Row>) => Effect.Effect<void, StoreCopyFailed>
  readonly pages: (table: Table) => Stream.Stream<ReadonlyArray<Row>, StoreCopyFailed>
  /** Gives the change log a new epoch and allows nodes to serve the store. Returns the epoch. */
  readonly finish: Effect.Effect<string, StoreCopyFailed>
}

export const notEmpty = (name: string): string =>
  `${name} is not empty, and two stores are never mixed. Is it the target that was meant?`

export const otherCopy = (name: string, howToEmpty: string): string =>
  `${name} has an unfinished copy of another store. Finish that one, or ${howToEmpty}.`
