/** Records of the change log. */
import type { JsonText } from "../base/Json/JsonText.ts"
import { type Address, between, splitAtValue, tenantOf } from "./Entry.ts"

/** A change record as the log stores it. `seq` has no gaps, and `timestamp` never decreases as `seq` increases. */
export interface StoredChange extends Address {
  readonly seq: number
  readonly op: "set" | "delete"
  /** `null` for a delete, and the text `null` for a set of the value `null`. */
  readonly value: JsonText | null
  readonly version: number
  readonly actor: string
  /** Epoch milliseconds. */
  readonly timestamp: number
}

/** A change record as JSON text, as clients receive it. */
export interface EncodedChange extends Address {
  readonly json: string
  readonly seq: number
  /** The tenant of the namespace. */
  readonly tenant: string
}

const seqAt = '{"seq":'.length
const tenantField = ',"tenantId":'

class Encoded implements EncodedChange {
  constructor(readonly json: string) {}

  get seq(): number {
    return Number.parseInt(this.json.slice(seqAt, seqAt + 16), 10)
  }

  get tenant(): string {
    return JSON.parse(this.json.slice(this.json.lastIndexOf(tenantField) + tenantField.length, -1))
  }

  get namespace(): string {
    return between(this.json, ',"namespace":', ',"key":')
  }

  get key(): string {
    return between(this.json, ',"key":', ',"value":')
  }
}

/** A record whose JSON text a backend has already made. It must be the text that {@link encode} makes. */
export const encoded = (json: string): EncodedChange => new Encoded(json)

/** Encodes a record, with its value as it is stored. */
export const encode = (change: StoredChange): EncodedChange =>
  encoded(
    `{"seq":${change.seq},"op":"${change.op}","namespace":${JSON.stringify(change.namespace)}` +
      `,"key":${JSON.stringify(change.key)},"value":${change.value},"version":${change.version}` +
      `,"actor":${JSON.stringify(change.actor)},"timestamp":${change.timestamp}` +
      `,"tenantId":${JSON.stringify(tenantOf(change.namespace))}}`
  )

/** The inverse of {@link encode}. */
export const decode = ({ json }: EncodedChange): StoredChange => {
  const [head, value, tail] = splitAtValue(json)
  const { tenantId: _, ...fields } = JSON.parse(`${head}null${tail}`)
  return { ...fields, value: fields.op === "set" ? value : null }
}
