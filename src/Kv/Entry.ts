import { Schema } from "effect"
import { JsonText } from "../Json/JsonText.ts"

/** A present entry as the store keeps it; times are epoch milliseconds. */
export interface StoredEntry {
  readonly namespace: string
  readonly key: string
  readonly value: JsonText
  /** 1 for a new key, then one more with every set and delete of that key. */
  readonly version: number
  readonly updatedBy: string
  readonly updatedAt: number
  readonly expiresAt: number | null
}

const Millis = Schema.Int.annotations({ description: "Epoch milliseconds." })

/** The entry that descriptions show. */
export const example = {
  namespace: "tenant:acme/settings",
  key: "theme",
  value: { dark: true },
  version: 3,
  updatedBy: "api",
  updatedAt: 1767225600000,
  expiresAt: null
} as const

/** An entry as clients see it. */
export const Entry = Schema.Struct({
  namespace: Schema.String,
  key: Schema.String,
  value: Schema.Unknown.annotations({ description: "Any JSON value." }),
  version: Schema.Int.annotations({
    description: "1 for a new key, then one more with every set and delete of it; never used twice."
  }),
  updatedBy: Schema.String.annotations({ description: "The actor that last wrote the entry." }),
  updatedAt: Millis,
  expiresAt: Schema.NullOr(Millis).annotations({
    description: "Epoch milliseconds, or null when the entry does not expire."
  })
}).annotations({
  identifier: "Entry",
  description: "A versioned JSON value, addressed by namespace and key.",
  examples: [example]
})

/** The JSON text of an entry, with its value spliced in as it is stored. */
export const toJson = (entry: StoredEntry): string =>
  `{"namespace":${JSON.stringify(entry.namespace)},"key":${JSON.stringify(entry.key)},"value":${entry.value}` +
  `,"version":${entry.version},"updatedBy":${JSON.stringify(entry.updatedBy)},"updatedAt":${entry.updatedAt}` +
  `,"expiresAt":${entry.expiresAt}}`

/** An entry of a list as the JSON text that clients get of it. */
export interface EncodedEntry {
  readonly json: string
  readonly key: string
}

/**
 * The parts before, of and after the value in the text of an entry or a change record. Quotation marks within names
 * are escaped, so that the first and the last of these members are those of the record itself.
 */
export const splitAtValue = (json: string): readonly [head: string, value: JsonText, tail: string] => {
  const start = json.indexOf(',"value":') + ',"value":'.length
  const end = json.lastIndexOf(',"version":')
  return [json.slice(0, start), JsonText(json.slice(start, end)), json.slice(end)]
}

class Encoded implements EncodedEntry {
  constructor(readonly json: string) {}

  get key(): string {
    return JSON.parse(this.json.slice(this.json.indexOf(',"key":') + ',"key":'.length, this.json.indexOf(',"value":')))
  }
}

/** An entry of which a backend has the text, which must be the one that {@link toJson} makes. */
export const encoded = (json: string): EncodedEntry => new Encoded(json)

export const encode = (entry: StoredEntry): EncodedEntry => encoded(toJson(entry))

/** The entry that was encoded. */
export const decode = ({ json }: EncodedEntry): StoredEntry => {
  const [head, value, tail] = splitAtValue(json)
  return { ...JSON.parse(`${head}null${tail}`), value }
}
