/**
 * Reads and prints JSON of the service with the original text of each stored value: `JSON.parse` would change the digits
 * of large numbers and the order of some members.
 */
import { Either } from "effect"
import type { ReadMembers } from "../Client/EntryLines.ts"
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

/** Values may have 256 MiB and be nested 1,000 levels deep; the limits of the service are lower by default. */
const limits = { depth: 1000, elements: 1_000_000, valueBytes: 268_435_456 }

/** Reads a text with {@link RawJson} instead of each value; the error is the problem. */
const read = (text: string): Either.Either<unknown, string> =>
  Either.mapLeft(ObjectReader.read(Buffer.from(text), text, document, limits), ({ message }) =>
    message.replace(/^the body is not JSON: /, "it is not JSON: ").replace(/^the body/, "it")
  )

/** Reads an answer of the service, with members of the kind `value` as {@link RawJson}. */
export const parse = (text: string): unknown =>
  // A newer service may send other members.
  Either.getOrElse(read(text), () => JSON.parse(text) as unknown)

const wrapper = '{"value":'

const isTruncated = (text: string): boolean => {
  try {
    JSON.parse(text)
    return false
  } catch (error) {
    return error instanceof Error && error.message.includes("end of JSON")
  }
}

/** The problem of a text that was read within an object, with positions in the text itself. */
const unwrapped = (problem: string, text: string): string => {
  if (text.trim() === "") return "it is empty"
  const [, start, position] = /^(it is not JSON: .*) at position (\d+)$/s.exec(problem) ?? []
  if (start === undefined) return problem
  const at = Number(position) - wrapper.length
  if (at < text.length) return `${start} at position ${at}`
  return `it is not JSON: ${isTruncated(text) ? "it ends too early" : "it is more than one value"}`
}

/** A value from the user, or the problem of its text. */
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

/** An object from the user, or the problem of its text. */
export const object = (text: string): Either.Either<Readonly<Record<string, unknown>>, string> =>
  Either.flatMap(read(text), found =>
    typeof found === "object" && found !== null && !Array.isArray(found)
      ? Either.right(found as Readonly<Record<string, unknown>>)
      : Either.left("it is not an object")
  )

/** The members of a line of an import. */
export const readMembers: ReadMembers<RawJson> = text =>
  Either.match(object(text), { onLeft: problem => ({ problem }), onRight: members => ({ members }) })

/** The JSON text of a tree whose values may be {@link RawJson}. */
export const stringify = (tree: unknown): string => {
  if (tree instanceof RawJson) return tree.text
  if (Array.isArray(tree)) return `[${tree.map(stringify).join(",")}]`
  if (typeof tree !== "object" || tree === null || "toJSON" in tree) return JSON.stringify(tree) ?? "null"
  const members = Object.entries(tree).filter(([, member]) => member !== undefined)
  return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${stringify(member)}`).join(",")}}`
}

/** The JSON text of a value of an entry or a change. */
export const textOf = (stored: unknown): JsonText =>
  stored instanceof RawJson ? stored.text : (stringify(stored) as JsonText)

/** A string as a value. */
export const ofText = (text: string): RawJson => new RawJson(JSON.stringify(text) as JsonText)
