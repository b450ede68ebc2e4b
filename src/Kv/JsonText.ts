import { Brand } from "effect"

/** One JSON value as compact text: valid, without insignificant white space, free of repeated member names. */
export type JsonText = string & Brand.Brand<"JsonText">

/** Vouches for text that is known to be compact JSON, such as a column that only the store writes. */
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
