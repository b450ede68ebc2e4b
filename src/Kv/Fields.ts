/**
 * Kinds of fields in requests to the key-value group.
 */
import { type ParseResult, Schema } from "effect"

/** An optional field. */
export const optional = <S extends Schema.Schema.All>(schema: S) => Schema.optionalWith(schema, { exact: true })

/** Digits as a number. A value beyond the safe integers becomes the greatest of them. */
const asInteger = (digits: string): number => Math.min(Number(digits), Number.MAX_SAFE_INTEGER)

/** A whole number in a query, in decimal digits. */
export const QueryInt = (options: {
  readonly minimum: number
  readonly maximum?: number
  /** The value if the parameter is absent. */
  readonly default?: number
  readonly description: string
}) => {
  const { minimum, maximum = Number.MAX_SAFE_INTEGER } = options
  const allowed =
    maximum === Number.MAX_SAFE_INTEGER
      ? `a whole number not below ${minimum}`
      : `a whole number from ${minimum} to ${maximum}`
  return Schema.transform(
    Schema.String.pipe(
      Schema.filter(text => /^\d+$/.test(text) && Number(text) >= minimum && asInteger(text) <= maximum, {
        message: ({ actual }) => `must be ${allowed}, not ${JSON.stringify(actual)}`
      })
    ),
    Schema.Number,
    { strict: true, decode: asInteger, encode: String }
  ).annotations({
    jsonSchema: {
      type: "integer",
      minimum,
      ...(options.maximum === undefined ? {} : { maximum }),
      ...(options.default === undefined ? {} : { default: options.default }),
      description: options.description
    }
  })
}

/** A whole number in a body. */
export const Whole = (options: { readonly minimum: number; readonly maximum: number; readonly description: string }) =>
  Schema.Number.pipe(
    Schema.filter(number => Number.isInteger(number) && number >= options.minimum && number <= options.maximum, {
      jsonSchema: {
        type: "integer",
        minimum: options.minimum,
        maximum: options.maximum,
        description: options.description
      }
    })
  ).annotations({
    description: options.description,
    message: ({ actual }) =>
      `must be a whole number from ${options.minimum} to ${options.maximum}, not ${JSON.stringify(actual)}`
  })

/**
 * A precondition that belongs to another kind of request. It is refused, because ignoring it could overwrite an entry
 * that it protects.
 */
export const Misplaced = (advice: string) =>
  optional(
    Schema.Never.annotations({
      description: `Refused: ${advice}.`,
      message: () => `is not accepted here; ${advice}`,
      jsonSchema: { not: {}, description: `Refused: ${advice}.` }
    })
  )

/**
 * Unknown members of a body are refused, at every level: ignoring a misspelled `ttlMs` or `ifVersion` would keep an
 * entry forever, or overwrite one.
 */
export const strict = { parseOptions: { onExcessProperty: "error" } } as const

/** The name of the unknown member that a body is refused for, if any. */
const unknownMember = (issue: ParseResult.ParseIssue): PropertyKey | undefined => {
  if (issue._tag !== "Composite" || !("_tag" in issue.issues) || issue.issues._tag !== "Pointer") return undefined
  const { issue: inner, path } = issue.issues
  return inner._tag === "Unexpected" && !Array.isArray(path) ? (path as PropertyKey) : undefined
}

/** Like {@link strict}. For members of other requests, the message says what to use instead. */
export const strictBut = (advice: Readonly<Record<string, string>>) => ({
  ...strict,
  message: (issue: ParseResult.ParseIssue) => {
    const name = unknownMember(issue)
    return typeof name === "string" && Object.hasOwn(advice, name)
      ? { message: `${name}: is not accepted here; ${advice[name]}`, override: true }
      : { message: "", override: false }
  }
})
