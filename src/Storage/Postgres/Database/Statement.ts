/**
 * Statements, their parameters, and their results.
 */

/** A row, column by column. Whole numbers of the database are numbers. */
export type Row = ReadonlyArray<unknown>

/** A value of a parameter. A text must not contain U+0000. */
export type Parameter = string | number | boolean | Buffer | null

/** A statement with its parameters and the decoding of its rows. */
export interface Query<A> {
  /** The name under which a connection prepares the statement once. */
  readonly name: string
  readonly text: string
  readonly values: ReadonlyArray<Parameter>
  readonly decode: (rows: ReadonlyArray<Row>) => A
}

/** Decodes the first column of the first row. */
export const first = <A>([row]: ReadonlyArray<Row>): A => row![0] as A

/** Calls a function of the schema. */
export const calling = <A>(
  name: string,
  values: ReadonlyArray<Parameter>,
  decode: (rows: ReadonlyArray<Row>) => A
): Query<A> => ({
  name,
  text: `SELECT causeway.${name}(${values.map((_, index) => `$${index + 1}`).join(", ")})`,
  values,
  decode
})
