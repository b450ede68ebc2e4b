/**
 * Decoders written by hand that stand before a schema. They take the most common inputs in a tenth of the schema's time,
 * and leave all others to the schema, which words the errors.
 */
import type { Schema } from "effect"

/** The value that the schema would decode an input to, or `undefined` where the schema has to decide. */
export type FastDecoder<A> = (input: unknown) => A | undefined

const symbol = Symbol.for("causeway/FastDecoder")

/** Annotates a schema with its fast decoder. */
export const annotation = <A>(decoder: FastDecoder<A>): Readonly<Record<symbol, unknown>> => ({ [symbol]: decoder })

/** The fast decoder of a schema, if it has one. */
export const of = (schema: Schema.Schema.All): FastDecoder<unknown> | undefined => {
  const decoder = schema.ast.annotations[symbol]
  return typeof decoder === "function" ? (input): unknown => decoder(input) : undefined
}
