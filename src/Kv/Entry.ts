/** Entries as the store keeps them: their addresses, and their JSON text. */
// Types only: the writer's thread imports this file, and the index of effect would use 40 MB there.
import type { JsonText } from "../base/Json/JsonText.ts"

export interface Address {
  readonly namespace: string
  readonly key: string
}

/** A present entry; times are epoch milliseconds. */
export interface StoredEntry extends Address {
  readonly value: JsonText
  /** 1 for a new key. Each set and delete of the key increments it. */
  readonly version: number
  readonly updatedBy: string
  readonly updatedAt: number
  readonly expiresAt: number | null
}

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

/** The text between two members of a record. Quotation marks within names are escaped. */
export const between = (json: string, member: string, next: string): string =>
  JSON.parse(json.slice(json.indexOf(member) + member.length, json.indexOf(next)))

class Encoded implements EncodedEntry {
  constructor(
    readonly json: string,
    private readonly afterKey: ',"value":' | ',"version":'
  ) {}

  get key(): string {
    return between(this.json, ',"key":', this.afterKey)
  }
}

/** An entry whose JSON text a backend has already made. It must be the text that {@link toJson} makes. */
export const encoded = (json: string): EncodedEntry => new Encoded(json, ',"value":')

/** The same without the member `value`. */
export const encodedWithoutValue = (json: string): EncodedEntry => new Encoded(json, ',"version":')

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

export const toEntry = (namespace: string, key: string, row: EntryRow): StoredEntry => ({
  namespace,
  key,
  value: row[4],
  version: row[0],
  updatedBy: row[1],
  updatedAt: row[2],
  expiresAt: row[3]
})
