/** Statements, with what they may read. */
import type { Parameter, Query, Statement } from "../../../../src/Storage/Postgres/Database/Statement.ts"

/** A statement, and how many rows of any large table it may read at most. */
export interface Case {
  readonly name: string
  readonly statement: Statement
  readonly values: ReadonlyArray<Parameter>
  readonly most: number
}

/** A query of which each large table may give `most` rows. */
export const reading = <A>(name: string, { statement, values }: Query<A>, most: number): Case => ({
  name,
  statement,
  values,
  most
})

/** A call of a function with as many parameters. */
export const calling = (name: string, values: ReadonlyArray<Parameter>, most: number, title = name): Case => ({
  name: title,
  statement: { name: title, text: `SELECT causeway.${name}(${values.map((_, index) => `$${index + 1}`).join(", ")})` },
  values,
  most
})
