/**
 * Entries as the store keeps them: the rules for their names, and their JSON text.
 */
// Types only: the writer's thread imports this file, and the index of effect would use 40 MB there.
import type { JsonText } from "../base/Json/JsonText.ts"

/** A present entry; times are epoch milliseconds. */
export interface StoredEntry {
  readonly namespace: string
  readonly key: string
  readonly value: JsonText
  /** 1 for a new key. Each set and delete of the key increments it. */
  readonly version: number
  readonly updatedBy: string
  readonly updatedAt: number
  readonly expiresAt: number | null
}

/** The actor of the deletes that expiry makes. */
export const expiryActor = "expiry"

const tenantPrefix = "tenant:"

/** The part of a namespace between `tenant:` and the first `/` or the end; `""` without that prefix. */
export const tenantOf = (namespace: string): string => {
  if (!namespace.startsWith(tenantPrefix)) return ""
  const end = namespace.indexOf("/", tenantPrefix.length)
  return namespace.slice(tenantPrefix.length, end === -1 ? undefined : end)
}

/** The entity tag (RFC 9110) of a version. */
export const etag = (version: number): string => `"${version}"`

/** Why a name is invalid, in words for the client; `undefined` if it is valid. */
export const problemOfName = (kind: "namespace" | "key", name: string, maxBytes: number): string | undefined => {
  if (name === "") return `${kind} is empty; it takes 1 to ${maxBytes} bytes of UTF-8`
  // URL parsers remove these segments, so that an entry of this name could not be read.
  if (name === "." || name === "..") return `${kind} must not be "${name}"`
  return problemOfText(kind, name) ?? problemOfLength(kind, name, maxBytes)
}

/** Why a text cannot be stored or compared by every backend; `undefined` if it can. */
export const problemOfText = (kind: string, text: string): string | undefined => {
  if (text.includes("\u0000")) return `${kind} must not contain U+0000`
  return text.isWellFormed() ? undefined : `${kind} must not contain a lone surrogate`
}

const problemOfLength = (kind: string, text: string, maxBytes: number): string | undefined => {
  const bytes = Buffer.byteLength(text)
  return bytes > maxBytes ? `${kind} has ${bytes} bytes of UTF-8; the limit is ${maxBytes}` : undefined
}

/** Why an actor is invalid; `undefined` if it is valid. An empty actor counts as none. */
export const problemOfActor = (actor: string, maxBytes: number): string | undefined =>
  problemOfText("actor", actor) ?? problemOfLength("actor", actor, maxBytes)

/** The JSON text of an entry, with its value spliced in as it is stored. */
export const toJson = (entry: StoredEntry): string =>
  `{"namespace":${JSON.stringify(entry.namespace)},"key":${JSON.stringify(entry.key)},"value":${entry.value}` +
  `,"version":${entry.version},"updatedBy":${JSON.stringify(entry.updatedBy)},"updatedAt":${entry.updatedAt}` +
  `,"expiresAt":${entry.expiresAt}}`

/** An entry of a list as JSON text, as clients receive it. */
export interface EncodedEntry {
  readonly json: string
  readonly key: string
}

/**
 * The parts before, of and after the value in the JSON text of an entry or a change record. Quotation marks within
 * names are escaped, so that the first and the last of these members are those of the record itself.
 */
export const splitAtValue = (json: string): readonly [head: string, value: JsonText, tail: string] => {
  const start = json.indexOf(',"value":') + ',"value":'.length
  const end = json.lastIndexOf(',"version":')
  return [json.slice(0, start), json.slice(start, end) as JsonText, json.slice(end)]
}

/** The text between two members of an entry. Quotation marks within names are escaped. */
const between = (json: string, member: string, next: string): string =>
  json.slice(json.indexOf(member) + member.length, json.indexOf(next))

class Encoded implements EncodedEntry {
  constructor(readonly json: string) {}

  get key(): string {
    return JSON.parse(between(this.json, ',"key":', ',"value":'))
  }
}

class EncodedWithoutValue implements EncodedEntry {
  constructor(readonly json: string) {}

  get key(): string {
    return JSON.parse(between(this.json, ',"key":', ',"version":'))
  }
}

/** An entry whose JSON text a backend has already made. It must be the text that {@link toJson} makes. */
export const encoded = (json: string): EncodedEntry => new Encoded(json)

/** The same without the member `value`. */
export const encodedWithoutValue = (json: string): EncodedEntry => new EncodedWithoutValue(json)

/** Encodes an entry of a list. */
export const encode = (entry: StoredEntry): EncodedEntry => encoded(toJson(entry))

/** Encodes an entry of a list without values. */
export const encodeWithoutValue = (entry: StoredEntry): EncodedEntry => {
  const [head, , tail] = splitAtValue(toJson({ ...entry, value: "0" as JsonText }))
  return encodedWithoutValue(head.slice(0, -',"value":'.length) + tail)
}

/** The inverse of {@link encode}. */
export const decode = ({ json }: EncodedEntry): StoredEntry => {
  const [head, value, tail] = splitAtValue(json)
  return { ...JSON.parse(`${head}null${tail}`), value }
}

/** The columns of one entry whose namespace and key are known. */
export type EntryRow = readonly [
  version: number,
  updatedBy: string,
  updatedAt: number,
  expiresAt: number | null,
  value: JsonText
]

/** The entry of a row. */
export const toEntry = (namespace: string, key: string, row: EntryRow): StoredEntry => ({
  namespace,
  key,
  value: row[4],
  version: row[0],
  updatedBy: row[1],
  updatedAt: row[2],
  expiresAt: row[3]
})
