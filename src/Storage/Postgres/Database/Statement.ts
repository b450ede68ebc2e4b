/**
 * Statements, what they are given, and what they return.
 */

/** A statement, and the name under which a connection prepares it once. */
export interface Statement {
  readonly name: string
  readonly text: string
}

/** A statement that calls a function of the schema, with so many parameters. */
export const calling = (name: string, parameters: number): Statement => ({
  name,
  text: `SELECT causeway.${name}(${Array.from({ length: parameters }, (_, index) => `$${index + 1}`).join(", ")})`
})

/** A row, column by column. Whole numbers of the database are numbers. */
export type Row = ReadonlyArray<unknown>

export type Parameter = string | number | boolean | Buffer | null

/** A statement with its parameters, and how its rows are read. */
export interface Query<A> {
  readonly statement: Statement
  readonly values: ReadonlyArray<Parameter>
  readonly decode: (rows: ReadonlyArray<Row>) => A
}
