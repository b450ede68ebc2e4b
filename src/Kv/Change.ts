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
  readonly tenant: string
}

const seqAt = '{"seq":'.length
const tenantField = ',"tenantId":'

abstract class Encoded implements EncodedChange {
  abstract readonly json: string

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

class Single extends Encoded {
  constructor(readonly json: string) {
    super()
  }
}

/** A record whose JSON text a backend has already made. It must be the text that {@link encode} makes. */
export const encoded = (json: string): EncodedChange => new Single(json)

/** What is between two records, and perhaps in a value. */
const boundary = '},{"seq":'

/** The ends of objects that are separated by commas. */
const scan = (text: string): ReadonlyArray<number> => {
  const ends: Array<number> = []
  let depth = 0
  for (let at = 0; at < text.length; at++) {
    const character = text[at]
    if (character === '"') {
      while (text[++at] !== '"') if (text[at] === "\\") at++
    } else if (character === "{") depth++
    else if (character === "}" && --depth === 0) ends.push(at + 1)
  }
  return ends
}

/** The texts of records that are separated by commas. */
const split = (text: string, count: number): ReadonlyArray<string> => {
  const found: Array<number> = []
  for (let at = text.indexOf(boundary); at !== -1; at = text.indexOf(boundary, at + 1)) found.push(at + 1)
  const ends = found.length === count - 1 ? [...found, text.length] : scan(text)
  return ends.map((end, index) => text.slice(index === 0 ? 0 : ends[index - 1]! + 1, end))
}

/** A copy of a record that keeps nothing else in memory. The text of one of a list may be a part of a longer text. */
export const detached = ({ json }: EncodedChange): EncodedChange => encoded(Buffer.from(json).toString())

/**
 * Records as one text or as a list, whichever a backend has made. The other form is made when it is needed. A text
 * without a list takes a fraction of the memory and of the time.
 */
export class Records {
  private constructor(
    readonly count: number,
    private readonly joined: string | undefined,
    private singles: ReadonlyArray<EncodedChange> | undefined
  ) {}

  static of(records: ReadonlyArray<EncodedChange>): Records {
    const [first] = records
    return first instanceof Part && first.of.isWhole(records)
      ? first.of
      : new Records(records.length, undefined, records)
  }

  static ofText(text: string, count: number): ReadonlyArray<EncodedChange> {
    const records = new Records(count, text, undefined)
    const parts = new Array<EncodedChange>(count)
    for (let index = 0; index < count; index++) parts[index] = new Part(records, index)
    return parts
  }

  get text(): string {
    return this.joined ?? this.list.map(({ json }) => json).join(",")
  }

  /** The approximate size of the JSON texts, in bytes. */
  get size(): number {
    return this.joined?.length ?? this.list.reduce((sum, { json }) => sum + json.length, 0)
  }

  get list(): ReadonlyArray<EncodedChange> {
    this.singles ??= split(this.text, this.count).map(encoded)
    return this.singles
  }

  at(index: number): EncodedChange {
    const record = this.list[index]
    if (record === undefined) throw new Error(`there are ${this.list.length} records instead of ${this.count}`)
    return record
  }

  private isWhole(records: ReadonlyArray<EncodedChange>): boolean {
    return (
      records.length === this.count &&
      records.every((record, index) => record instanceof Part && record.of === this && record.index === index)
    )
  }
}

/** A record in the text of several. */
class Part extends Encoded {
  constructor(
    readonly of: Records,
    readonly index: number
  ) {
    super()
  }

  get json(): string {
    return this.of.at(this.index).json
  }
}

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
