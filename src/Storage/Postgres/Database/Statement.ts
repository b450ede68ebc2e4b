/**
 * Statements, their parameters, and their results.
 */

/** A statement, and the name under which a connection prepares it once. */
export interface Statement {
  readonly name: string
  readonly text: string
}

/** A statement that calls a function of the schema, with a number of parameters. */
export const calling = (name: string, parameters: number): Statement => ({
  name,
  text: `SELECT causeway.${name}(${Array.from({ length: parameters }, (_, index) => `$${index + 1}`).join(", ")})`
})

/** A row, column by column. Whole numbers of the database are numbers. */
export type Row = ReadonlyArray<unknown>

/** A value of a parameter. A text must not contain U+0000. */
export type Parameter = string | number | boolean | Buffer | null

/** A statement with its parameters and the decoding of its rows. */
export interface Query<A> {
  readonly statement: Statement
  readonly values: ReadonlyArray<Parameter>
  readonly decode: (rows: ReadonlyArray<Row>) => A
}
