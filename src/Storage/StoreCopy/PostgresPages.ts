/**
 * Pages of rows of a store in PostgreSQL, read and written.
 */
import { Effect, Option, Stream } from "effect"
import type { Query } from "../Postgres/Database/Client.ts"
import { describe } from "../Postgres/Database/DatabaseError.ts"
import * as Encoding from "../Postgres/Database/Encoding.ts"
import type { Row as DatabaseRow, Parameter } from "../Postgres/Database/Statement.ts"
import { maxNameBytes } from "../Postgres/Schema.ts"
import { type Cell, pageBytes, pageRows, type Row, StoreCopyFailed, type Table } from "./Tables.ts"

/** The failure of a copy after it has started. */
export const failed = (error: unknown) => new StoreCopyFailed({ message: describe(error) })

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

/** Refuses names that are too long for an index, with a message that has the names; that of the database has not. */
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
          ? Encoding.texts(page.map(row => cell(row, index) as string | null))
          : Encoding.bigints(page.map(row => cell(row, index) as number | null))
      )
      return Effect.zipRight(
        refuseLongNames(table, page),
        Effect.mapError(query(insertText(table), parameters), failed)
      )
    })
