/**
 * The parts that the schemas of requests to the key-value group are made of: kinds of fields, and fast decoders of the
 * most common requests.
 */
import { type ParseResult, Schema } from "effect"
import { RawJson } from "../base/Json/JsonText.ts"
import type { FastDecoder } from "../Http/Contract.ts"

/** An optional field. */
export const optional = <S extends Schema.Schema.All>(schema: S) => Schema.optionalWith(schema, { exact: true })

/** Digits as a number. A value beyond the safe integers becomes the greatest of them. */
const asInteger = (digits: string): number => Math.min(Number(digits), Number.MAX_SAFE_INTEGER)

/** An optional text in a query, a header or a body. */
export const text = (description: string) => optional(Schema.String.annotations({ description }))

/** The tenant that a query asks for. */
export const tenant = (description: string) =>
  optional(Schema.String.annotations({ jsonSchema: { type: "string", default: "", description } }))

/** An optional whole number in a query, in decimal digits. */
export const wholeText = (options: {
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
  return optional(
    Schema.transform(
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
  )
}

/** An optional whole number in a body. */
export const whole = (limits: { readonly minimum: number; readonly maximum: number }, description: string) => {
  const { maximum, minimum } = limits
  return optional(
    Schema.Number.pipe(
      Schema.filter(number => Number.isInteger(number) && number >= minimum && number <= maximum, {
        jsonSchema: { type: "integer", minimum, maximum, description }
      })
    ).annotations({
      description,
      message: ({ actual }) => `must be a whole number from ${minimum} to ${maximum}, not ${JSON.stringify(actual)}`
    })
  )
}

/**
 * A precondition that belongs to another kind of request. It is refused, because ignoring it could overwrite an entry
 * that it protects.
 */
export const misplaced = (advice: string) =>
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

/** Printable ASCII characters. The server has removed white space at the ends. */
const idempotencyKey = /^[\x20-\x7e]{1,256}$/

/** The header that identifies a write, so that its repetition gets the same answer. */
export const idempotency = {
  "idempotency-key": optional(
    Schema.String.pipe(
      Schema.filter(text => idempotencyKey.test(text), {
        message: ({ actual }) => ({
          message: `must be 1 to 256 printable characters of ASCII, not ${JSON.stringify(String(actual).slice(0, 64))}`,
          override: true
        })
      })
    ).annotations({
      jsonSchema: {
        type: "string",
        minLength: 1,
        maxLength: 256,
        description:
          "Any text that names this write. A repeated request with the same text gets the first answer, and is not applied again. The text is stored for 24 hours, or less if its tenant has written very many."
      }
    })
  )
}

type Members = Readonly<Record<string, unknown>>

const isPlainObject = (input: unknown): input is Members =>
  typeof input === "object" && input !== null && Object.getPrototypeOf(input) === Object.prototype

// The fast decoders accept requests without preconditions and without an expiry. The schemas decode all others.

/** The names in a path. The router has checked that the path has these parameters. */
export const fastPath = <Name extends string>(
  ...names: ReadonlyArray<Name>
): FastDecoder<Readonly<Record<Name, string>>> => {
  const isComplete = (input: Members): input is Readonly<Record<Name, string>> => {
    for (const name of names) if (typeof input[name] !== "string") return false
    for (const name in input) if (!names.some(known => known === name)) return false
    return true
  }
  return input => (isPlainObject(input) && isComplete(input) ? input : undefined)
}

const none = {}

/** Accepts headers that have none of these names. */
export const headersWithout =
  (...names: ReadonlyArray<string>): FastDecoder<Readonly<Record<string, never>>> =>
  input => {
    if (!isPlainObject(input)) return undefined
    for (const name of names) if (name in input) return undefined
    return none
  }

/** The body of a common PUT. */
interface PlainSet {
  readonly value: unknown
  readonly actor?: string
}

const isPlainSet = (input: Members): input is Members & PlainSet => {
  if (!(input.value instanceof RawJson)) return false
  for (const name in input) {
    if (name !== "value" && (name !== "actor" || typeof input.actor !== "string")) return false
  }
  return true
}

/** Decodes the body of a PUT with a value, and optionally an actor. */
export const fastSetPayload: FastDecoder<PlainSet> = input =>
  isPlainObject(input) && isPlainSet(input) ? input : undefined

/** An operation of a common batch. */
type PlainOperation =
  | { readonly op: "set"; readonly namespace: string; readonly key: string; readonly value: unknown }
  | { readonly op: "delete"; readonly namespace: string; readonly key: string }

const isPlainOperation = (input: unknown): input is PlainOperation => {
  if (!isPlainObject(input) || typeof input.namespace !== "string" || typeof input.key !== "string") return false
  const isSet = input.op === "set"
  if (isSet ? !(input.value instanceof RawJson) : input.op !== "delete") return false
  for (const name in input) {
    if (name !== "op" && name !== "namespace" && name !== "key" && !(isSet && name === "value")) return false
  }
  return true
}

/** The body of a common batch. */
interface PlainBatch {
  readonly operations: ReadonlyArray<PlainOperation>
  readonly actor?: string
}

const isPlainBatch = (input: Members): input is Members & PlainBatch => {
  const { operations } = input
  if (!Array.isArray(operations)) return false
  for (const name in input) {
    if (name !== "operations" && (name !== "actor" || typeof input.actor !== "string")) return false
  }
  for (let index = 0; index < operations.length; index++) if (!isPlainOperation(operations[index])) return false
  return true
}

/** Decodes the body of a batch whose operations have no preconditions and no expiry. */
export const fastBatchPayload: FastDecoder<PlainBatch> = input =>
  isPlainObject(input) && isPlainBatch(input) ? input : undefined
