/**
 * A history: the requests of clients, their answers, and the times. It is recorded while a workload runs, and then
 * checked by `Checker`. As a file it has one JSON object per line (NDJSON), the header first.
 */
import type * as Api from "../../src/Kv/Api.ts"

export type Change = typeof Api.Change.Type
export type Entry = typeof Api.Entry.Type

export interface Address {
  readonly namespace: string
  readonly key: string
}

interface Conditional extends Address {
  /** What the entry must be for an operation to go ahead: 0 is absent, any other number that very version. */
  readonly ifVersion?: number
}

export interface SetOperation extends Conditional {
  readonly op: "set"
  readonly value: unknown
  readonly ttlMs?: number
}

export type Operation = SetOperation | (Conditional & { readonly op: "delete" })

/** What a delete of a prefix deletes: the first entries whose key starts with it. */
export interface PrefixDelete {
  readonly namespace: string
  readonly prefix: string
  readonly limit: number
}

/**
 * A PUT, a DELETE, a batch or a delete of a prefix. No two writes of a history have the same actor, so that a record
 * identifies its write. The same action with an `Idempotency-Key` may be invoked repeatedly; it is one write.
 */
export interface WriteAction {
  readonly type: "write"
  readonly by: "put" | "delete" | "batch" | "prefix"
  readonly actor: string
  readonly operations: ReadonlyArray<Operation>
  readonly prefixDelete?: PrefixDelete
  readonly idempotencyKey?: string
}

export type OperationResult = { readonly version: number } | { readonly deleted: boolean }

export interface WriteResult {
  readonly results: ReadonlyArray<OperationResult>
  /** How many entries a delete of a prefix deleted, and whether there are others. */
  readonly removed?: { readonly count: number; readonly more: boolean }
  readonly entry?: Entry
}

export interface GetAction extends Address {
  readonly type: "get"
  readonly ifNoneMatch?: number
}

/** The entry, `null` if it is absent, or that it still has the version in `If-None-Match`. */
export type GetResult = { readonly entry: Entry | null } | { readonly notModified: number }

export interface ReadAction {
  readonly type: "read"
  readonly addresses: ReadonlyArray<Address>
}

/** `Kv-Last-Seq`, and `Kv-Epoch` if the service has one. */
type LogEnd = { readonly lastSeq: number; readonly epoch?: string }

export interface ReadResult extends LogEnd {
  /** One for each address, `null` if it is absent. */
  readonly entries: ReadonlyArray<Entry | null>
}

/** A page of a list, or a whole list without a `limit`. */
export interface ListAction {
  readonly type: "list"
  readonly namespace: string
  readonly prefix: string
  /** Only keys from `start` on, and before `end`. */
  readonly start?: string
  readonly end?: string
  readonly reverse?: true
  /** Whether to count all entries of the selection, on any page. */
  readonly count?: true
  readonly limit?: number
  readonly afterKey?: string
}

export interface ListResult extends LogEnd {
  readonly items: ReadonlyArray<Entry>
  readonly lastSeq: number
  readonly more: boolean
  readonly count?: number
  readonly epoch?: string
}

/** A read of the change log, one page. */
export interface PollAction {
  readonly type: "poll"
  /** The reader of several polls, each of which continues from the last one. */
  readonly follower: string
  readonly after: number
  readonly epoch?: string
  readonly limit: number
  readonly wait: number
  readonly tenant?: string
}

export interface PollResult extends LogEnd {
  readonly changes: ReadonlyArray<Change>
}

export type Action = WriteAction | GetAction | ReadAction | ListAction | PollAction
export type Result = WriteResult | GetResult | ReadResult | ListResult | PollResult

/** What a 412 answer says about the entry of a PUT or a DELETE. */
export interface Refusal {
  /** The version in `ETag`, `null` without one; absent for a batch, whose answer has none. */
  readonly currentVersion?: number | null
}

interface At {
  /** Nanoseconds on a monotonic clock; no two events have the same time. */
  readonly time: number
  /** Epoch milliseconds, by which entries expire. */
  readonly wall: number
}

export interface Invoke extends At {
  readonly type: "invoke"
  readonly id: number
  readonly client: string
  readonly node: string
  readonly action: Action
}

export interface Ok extends At {
  readonly type: "ok"
  readonly id: number
  readonly result: Result
}

/** The operation has had no effect, and never will. */
export interface Fail extends At {
  readonly type: "fail"
  readonly id: number
  readonly reason: string
  readonly refused?: Refusal
  /** Present if the answer was 410: the log was replaced. */
  readonly gone?: true
}

/** No answer came, or 503: the operation may take effect at any time after its invocation, or never. */
export interface Unknown extends At {
  readonly type: "unknown"
  readonly id: number
  readonly reason: string
}

export interface Open extends At {
  readonly type: "open"
  readonly follower: string
  readonly node: string
  readonly by: "events" | "socket"
  readonly after: number
  readonly epoch?: string
  readonly tenant?: string
}

/** A follower receives records, or a position beyond the last record that is for it. */
export interface Seen extends At, PollResult {
  readonly type: "seen"
  readonly follower: string
}

/** A follower is reset, because the log was replaced or the records that it needs were removed. */
export interface Reset extends At {
  readonly type: "reset"
  readonly follower: string
}

/** Something that helps to understand the history, as that a node was killed. */
export interface Note extends At {
  readonly type: "note"
  readonly text: string
}

/** All clients have ended and all followers have had the time to read to the end of the log. */
export interface End extends At {
  readonly type: "end"
}

export type Event = Invoke | Ok | Fail | Unknown | Open | Seen | Reset | Note | End

export interface Header {
  readonly type: "history"
  readonly version: 1
  readonly seed: string
  /** By how many milliseconds the clocks of clients, nodes and the database may differ. */
  readonly clockError: number
}

export type History = { readonly header: Header; readonly events: ReadonlyArray<Event> }

export const addressOf = ({ namespace, key }: Address): string => `${namespace}\u0000${key}`

/** The history as a file has it, line by line. */
export const lines = function* ({ events, header }: History): Generator<string> {
  yield JSON.stringify(header)
  for (const event of events) yield JSON.stringify(event)
}

const types = new Set<string | undefined>("invoke ok fail unknown open seen reset note end".split(" "))

/** Reads what {@link lines} wrote; throws if the text is something else. */
export const parse = (text: string): History => {
  const parsed = text
    .split("\n")
    .filter(line => line !== "")
    .map((line, index): Partial<Header> | Partial<Event> => {
      try {
        return Object(JSON.parse(line))
      } catch (cause) {
        throw new Error(`Line ${index + 1} is no JSON`, { cause })
      }
    })
  const [header, ...events] = parsed
  if (header?.type !== "history" || header.version !== 1) throw new Error("Line 1 is no header of a history, version 1")
  const bad = events.findIndex(({ type }) => !types.has(type))
  if (bad !== -1) throw new Error(`Line ${bad + 2} is no event of a history`)
  return { header: header as Header, events: events as ReadonlyArray<Event> }
}
