import { Effect, Either } from "effect"
import { type JsonProblem, problemOf } from "../../src/Json/JsonText.ts"
import * as ObjectReader from "../../src/Json/ObjectReader.ts"
import { format } from "../../src/Kv/Body.ts"
import { Limits } from "../../src/Limits.ts"

const { shape } = format(Effect.runSync(Limits))

/** Reads a body of the key-value group. */
export const parseBody = (
  text: string,
  depth: number,
  elements = Number.POSITIVE_INFINITY,
  valueBytes = Number.POSITIVE_INFINITY
): Either.Either<unknown, JsonProblem> =>
  Either.try({
    try: () => ObjectReader.read(Buffer.from(text), text, shape, { depth, elements, valueBytes }),
    catch: problemOf
  })
