/**
 * Stored values are passed as JSON text (RFC 8259, within I-JSON, RFC 7493): a reader gets the text that a client
 * wrote, with its member order and all names, and no request parses and prints a value again.
 */
import { type Brand, Either } from "effect"
import { messageOf } from "../ErrorMessage.ts"

/** One JSON value as compact text: valid, without insignificant white space, free of repeated member names. */
export type JsonText = string & Brand.Brand<"JsonText">

/** Brands text as JSON text without a check, for known compact JSON such as a column that only the store writes. */
export const JsonText = (text: string): JsonText => text as JsonText

/** Why a text or a JavaScript value is not a JSON value that can be stored; `message` may be sent to a client. */
export class JsonProblem {
  readonly _tag = "JsonProblem"
  constructor(
    readonly message: string,
    /** Whether it is well-formed, but over a limit. */
    readonly overLimit = false,
    /** Its position in the text, in UTF-16 code units, if it has one. */
    readonly offset?: number,
    /** What the grammar allows at this position instead. */
    readonly expected?: string
  ) {}
}

/**
 * A member of a parsed request body that is kept as text.
 *
 * It is used for "any JSON value" in a contract, and passes `Schema.Unknown` there.
 */
export class RawJson {
  constructor(readonly text: JsonText) {}
  toJSON(): unknown {
    return JSON.parse(this.text)
  }
  /** Its text in messages about a misplaced value. */
  toString(): string {
    return this.text
  }
}

/** A thrown value as a {@link JsonProblem}. */
export const problemOf = (error: unknown): JsonProblem =>
  error instanceof JsonProblem ? error : new JsonProblem(messageOf(error))

/**
 * The text of a value that is already in memory: {@link RawJson} unchanged, anything else printed.
 *
 * Refuses values that JSON cannot express (`undefined`, functions, bigint, cycles, infinities) and nesting beyond
 * `maxDepth`.
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
  // A member that is undefined is omitted in print, but an element would become null.
  const children = Array.isArray(value) ? value : Object.values(value).filter(child => child !== undefined)
  for (const child of children) checkTree(child, levelsLeft - 1)
}

/** The parsed form, for code in the same process that needs the value rather than its text. */
export const toUnknown = (text: JsonText): unknown => JSON.parse(text)
