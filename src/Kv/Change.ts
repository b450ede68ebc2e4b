import { Schema } from "effect"
import type { JsonText } from "../Json/JsonText.ts"
import * as Entry from "./Entry.ts"
import { tenantOf } from "./Tenant.ts"

/** A change record as the log keeps it. Records are dense in `seq`, and `timestamp` never falls as `seq` rises. */
export interface StoredChange {
  readonly seq: number
  readonly op: "set" | "delete"
  readonly namespace: string
  readonly key: string
  /** `null` for a delete, and the text `null` for a set of that value. */
  readonly value: JsonText | null
  readonly version: number
  readonly actor: string
  /** Epoch milliseconds. */
  readonly timestamp: number
}

/** The change record that descriptions show: that of the {@link Entry.example} entry. */
export const example = {
  seq: 42,
  op: "set",
  namespace: Entry.example.namespace,
  key: Entry.example.key,
  value: Entry.example.value,
  version: Entry.example.version,
  actor: Entry.example.updatedBy,
  timestamp: Entry.example.updatedAt,
  tenantId: tenantOf(Entry.example.namespace)
} as const

/** A change record as clients see it. */
export const Change = Schema.Struct({
  seq: Schema.Int.annotations({ description: "Position in the log: dense, increasing, global." }),
  op: Schema.Literal("set", "delete"),
  namespace: Schema.String,
  key: Schema.String,
  value: Schema.Unknown.annotations({ description: "The value that was set, or null for a delete." }),
  version: Schema.Int.annotations({ description: "The version that the entry got by this write." }),
  actor: Schema.String.annotations({ description: "Who wrote; `expiry` where an entry ran out." }),
  timestamp: Schema.Int.annotations({ description: "Epoch milliseconds; never falls as seq rises." }),
  tenantId: Schema.String.annotations({ description: "The tenant of the namespace, or the empty string." })
}).annotations({
  identifier: "Change",
  description: "One set or delete.",
  examples: [example]
})

/** The JSON text of a change record, with its value spliced in as it is stored. */
export const toJson = (change: StoredChange): string =>
  `{"seq":${change.seq},"op":"${change.op}","namespace":${JSON.stringify(change.namespace)}` +
  `,"key":${JSON.stringify(change.key)},"value":${change.value},"version":${change.version}` +
  `,"actor":${JSON.stringify(change.actor)},"timestamp":${change.timestamp}` +
  `,"tenantId":${JSON.stringify(tenantOf(change.namespace))}}`
