/**
 * Stored values travel as JSON text (RFC 8259, within I-JSON, RFC 7493): what a client wrote is what a
 * reader gets back, member order and odd names included, and no request parses and prints a value again.
 */
import { Brand, Either } from "effect"
import { messageOf } from "../ErrorMessage.ts"

/** One JSON value as compact text: valid, without insignificant white space, free of repeated member names. */
export type JsonText = string & Brand.Brand<"JsonText">

/** Marks text as JSON text, unchecked: it is known to be compact JSON, such as a column that only the store writes. */
export const JsonText = Brand.nominal<JsonText>()

/** Why a text or a JavaScript value is not a JSON value that can be kept; `message` is fit for a client. */
export class JsonProblem {
  readonly _tag = "JsonProblem"
  constructor(
    readonly message: string,
    /** Whether it is well-formed and merely more than is taken. */
    readonly overLimit = false
  ) {}
}

/**
 * A member of a parsed request body that is kept as text.
 *
 * It stands where a contract says "any JSON value", and passes there through `Schema.Unknown`.
 */
export class RawJson {
  constructor(readonly text: JsonText) {}
  toJSON(): unknown {
    return JSON.parse(this.text)
  }
  /** As messages about a misplaced value show it. */
  toString(): string {
    return this.text
  }
}

/** What was thrown, as a {@link JsonProblem}. */
export const problemOf = (error: unknown): JsonProblem =>
  error instanceof JsonProblem ? error : new JsonProblem(messageOf(error))

/**
 * The text of a value that is already in memory: {@link RawJson} as it came, anything else printed.
 *
 * Refused: what JSON cannot say (`undefined`, functions, bigint, cycles, infinities) and nesting beyond `maxDepth`.
 */
export const fromUnknown = (value: unknown, maxDepth: number): Either.Either<JsonText, JsonProblem> => {
  if (value instanceof RawJson) return Either.right(value.text)
  return Either.try({
    try: () => {
      checkTree(value, maxDepth)
      const text: string | undefined = JSON.stringify(value)
      if (text === undefined) throw new JsonProblem("the value says of itself that it is none in JSON")
      return JsonText(text)
    },
    catch: problemOf
  })
}

const checkTree = (value: unknown, levelsLeft: number): void => {
  if (typeof value === "number" && !Number.isFinite(value)) throw new JsonProblem(`${value} is not a JSON number`)
  if (value === undefined || typeof value === "function" || typeof value === "symbol") {
    throw new JsonProblem(`${typeof value} is not a JSON value`)
  }
  if (typeof value !== "object" || value === null) return
  if (levelsLeft === 0) throw new JsonProblem("JSON is nested too deep, or refers to itself")
  // A member that is undefined is left out in print, but an element would turn into null.
  const children = Array.isArray(value) ? value : Object.values(value).filter(child => child !== undefined)
  for (const child of children) checkTree(child, levelsLeft - 1)
}

/** The parsed form, for code in the same process that wants the value rather than its text. */
export const toUnknown = (text: JsonText): unknown => JSON.parse(text)
