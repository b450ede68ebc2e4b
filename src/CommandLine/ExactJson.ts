/**
 * JSON of the service with the text of each stored value as it was sent: `JSON.parse` would change the digits of large
 * numbers and the order of some members.
 */
import { Either } from "effect"
import { type JsonText, RawJson } from "../Json/JsonText.ts"
import * as ObjectReader from "../Json/ObjectReader.ts"

const record = ObjectReader.shape({
  seq: "scalar",
  op: "scalar",
  namespace: "scalar",
  key: "scalar",
  value: "json",
  version: "scalar",
  updatedBy: "scalar",
  updatedAt: "scalar",
  expiresAt: "scalar",
  actor: "scalar",
  timestamp: "scalar",
  tenantId: "scalar",
  deleted: "scalar",
  ttlMs: "scalar",
  ifVersion: "scalar",
  count: "scalar"
})

const document = ObjectReader.shape({
  items: record,
  changes: record,
  entries: record,
  results: record,
  operations: record,
  namespaces: record,
  value: "json"
})

/** Values may have 256 MiB and be nested 1,000 levels deep; what the service allows by default is less. */
const limits = { depth: 1000, elements: 1_000_000, valueBytes: 268_435_456 }

/** Reads a text with {@link RawJson} in the place of each value; the error says what is wrong with it. */
const read = (text: string): Either.Either<unknown, string> =>
  Either.mapLeft(ObjectReader.read(Buffer.from(text), text, document, limits), ({ message }) =>
    message.replace(/^the body is not JSON: /, "it is not JSON: ").replace(/^the body/, "it")
  )

/** Reads what the service answers, or a line of a file: members of the kind `value` are {@link RawJson}. */
export const parse = (text: string): unknown =>
  // A newer service may send what is not known here.
  Either.getOrElse(read(text), () => JSON.parse(text) as unknown)

const wrapper = '{"value":'

const isCut = (text: string): boolean => {
  try {
    JSON.parse(text)
    return false
  } catch (error) {
    return error instanceof Error && error.message.includes("end of JSON")
  }
}

/** What is wrong with a text that was read within an object, by the positions of the text alone. */
const unwrapped = (problem: string, text: string): string => {
  if (text.trim() === "") return "it is empty"
  const [, start, position] = /^(it is not JSON: .*) at position (\d+)$/s.exec(problem) ?? []
  if (start === undefined) return problem
  const at = Number(position) - wrapper.length
  if (at < text.length) return `${start} at position ${at}`
  return `it is not JSON: ${isCut(text) ? "it ends too early" : "it is more than one value"}`
}

/** A value that a user gives, or why it is not one. */
export const value = (text: string): Either.Either<RawJson, string> =>
  Either.flatMap(
    Either.mapLeft(read(`${wrapper}${text}}`), problem => unwrapped(problem, text)),
    found => {
      const members = Object.entries(found as object)
      const [name, given] = members[0] ?? []
      return members.length === 1 && name === "value" && given instanceof RawJson
        ? Either.right(given)
        : Either.left("it is not JSON: it is more than one value")
    }
  )

/** An object that a user gives, or why it is not one. */
export const object = (text: string): Either.Either<Readonly<Record<string, unknown>>, string> =>
  Either.flatMap(read(text), found =>
    typeof found === "object" && found !== null && !Array.isArray(found)
      ? Either.right(found as Readonly<Record<string, unknown>>)
      : Either.left("it is not an object")
  )

/** Prints a tree in which values may be {@link RawJson}. */
export const stringify = (tree: unknown): string => {
  if (tree instanceof RawJson) return tree.text
  if (Array.isArray(tree)) return `[${tree.map(stringify).join(",")}]`
  if (typeof tree !== "object" || tree === null || "toJSON" in tree) return JSON.stringify(tree) ?? "null"
  const members = Object.entries(tree).filter(([, member]) => member !== undefined)
  return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${stringify(member)}`).join(",")}}`
}

/** The text of a value of an entry or a change. */
export const textOf = (stored: unknown): JsonText =>
  stored instanceof RawJson ? stored.text : (stringify(stored) as JsonText)

/** A text as a value. */
export const ofText = (text: string): RawJson => new RawJson(JSON.stringify(text) as JsonText)
