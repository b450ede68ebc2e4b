/**
 * Shortcuts past a schema: plain checks by which the plainest inputs of a request are known to be what its schema
 * would decode them to. They take a tenth of the schema's time, and leave all else, complaints included, to it.
 */
import type { Schema } from "effect"

/**
 * What the schema would decode an input to, or `undefined` where the schema has to look. It must never give what the
 * schema would not: the test of each compares them.
 */
export type Shortcut<A> = (input: unknown) => A | undefined

const symbol = Symbol.for("causeway/Shortcut")

/** Says of a schema that it may be passed by. */
export const annotation = <A>(shortcut: Shortcut<A>): Readonly<Record<symbol, unknown>> => ({ [symbol]: shortcut })

/** The shortcut past a schema, where it has one. */
export const of = (schema: Schema.Schema.All): Shortcut<unknown> | undefined => {
  const shortcut = schema.ast.annotations[symbol]
  return typeof shortcut === "function" ? (input): unknown => shortcut(input) : undefined
}
