import { Schema } from "effect"
import type { JsonText } from "../Json/JsonText.ts"

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
