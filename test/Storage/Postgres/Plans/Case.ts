/** Statements, with what they may read. */
import type { Parameter, Query } from "../../../../src/Storage/Postgres/Database/Statement.ts"
import * as Held from "../Held.ts"

/** A statement, and how many rows of any large table it may read at most. */
export interface Case extends Pick<Query<unknown>, "text" | "values"> {
  readonly name: string
  readonly most: number
}

/** A query of which each large table may give `most` rows. */
export const reading = <A>(name: string, { text, values }: Query<A>, most: number): Case => ({
  name,
  text,
  values,
  most
})

/** A call of a function with as many parameters. */
export const calling = (name: string, values: ReadonlyArray<Parameter>, most: number, title = name): Case =>
  reading(title, Held.calling(name, values), most)
