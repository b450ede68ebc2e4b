import { Effect, Either } from "effect"
import { type JsonProblem, problemOf } from "../../../src/base/Json/JsonText.ts"
import * as ObjectReader from "../../../src/base/Json/ObjectReader.ts"
import { Limits } from "../../../src/base/Limits.ts"
import { format } from "../../../src/Kv/Body.ts"

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
