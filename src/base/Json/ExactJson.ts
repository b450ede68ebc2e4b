/**
 * Reads and prints JSON of the service with the original text of each stored value, for the command line and the console:
 * `JSON.parse` would change the digits of large numbers and the order of some members.
 */
import type { ReadMembers } from "../../Client/EntryLines.ts"
import { JsonProblem, JsonText, problemOf, RawJson } from "./JsonText.ts"
import * as ObjectReader from "./ObjectReader.ts"
import { isObject } from "./Parsing.ts"
import type { Utf8 } from "./Scanner.ts"

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

const encoder = new TextEncoder()
const decoder = new TextDecoder("utf-8", { ignoreBOM: true })

/** UTF-8 that is decoded in part without a `Buffer`, which browsers do not have. */
class EncodedText extends Uint8Array implements Utf8 {
  override toString(_encoding?: "utf8", start?: number, end?: number): string {
    return decoder.decode(this.subarray(start, end))
  }
}

/** Reads a text with {@link RawJson} instead of each value, or as one value; or returns its problem. */
const read = (text: string, kind: Parameters<typeof ObjectReader.read>[2]): unknown => {
  const { buffer, byteOffset, length } = encoder.encode(text)
  try {
    return ObjectReader.read(new EncodedText(buffer, byteOffset, length), text, kind, limits)
  } catch (error) {
    const { expected, message, offset, overLimit } = problemOf(error)
    return new JsonProblem(message.replace(/^the body/, "it"), overLimit, offset, expected)
  }
}

/** Reads an answer of the service, with members of the kind `value` as {@link RawJson}. */
export const parse = (text: string): unknown => {
  const found = read(text, document)
  // A newer service may send other members.
  return found instanceof JsonProblem ? JSON.parse(text) : found
}

/** A value from the user, or the problem of its text. */
export const value = (text: string): RawJson | JsonProblem =>
  text.trim() === "" ? new JsonProblem("it is empty") : (read(text, "json") as RawJson | JsonProblem)

/** The members of an object from the user, such as a line of an import, or the problem of its text. */
export const readMembers: ReadMembers<RawJson> = text => {
  const found = read(text, document)
  if (found instanceof JsonProblem) return { problem: found.message }
  return isObject(found) ? { members: found } : { problem: "it is not an object" }
}

/** The JSON text of a tree whose values may be {@link RawJson}. */
export const stringify = (tree: unknown): string => {
  if (tree instanceof RawJson) return tree.text
  if (Array.isArray(tree)) return `[${tree.map(stringify).join(",")}]`
  if (typeof tree !== "object" || tree === null || "toJSON" in tree) return JSON.stringify(tree) ?? "null"
  const members = Object.entries(tree).filter(([, member]) => member !== undefined)
  return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${stringify(member)}`).join(",")}}`
}

/** The JSON text of a value of an entry or a change. */
export const textOf = (stored: unknown): JsonText => JsonText(stringify(stored))

export const ofText = (text: string): RawJson => new RawJson(JsonText(JSON.stringify(text)))
