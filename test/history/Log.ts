/**
 * What the followers of a history saw: one change log for each epoch, as a sequence of commits. A position is the
 * number of commits that have been made: the state at position 0 is empty, and the commit with index i leads from
 * position i to i + 1.
 */
import type * as H from "./History.ts"
import { addressOf, type Change, type Operation, type SetOperation } from "./History.ts"
import { answers, isPoll, name, type Op, text, type Violation, type Write } from "./Operations.ts"

/** A record and the operation of its write that made it; none for an expiry, or if the record matches none. */
type Made = { readonly change: Change; readonly operation: Operation | undefined }

/** The records of one write, or one record of an expiry. */
export interface Commit {
  readonly index: number
  readonly first: number
  readonly last: number
  readonly actor: string
  /** Absent for an expiry, and for an actor that is not in the history. */
  readonly write: Write | undefined
  readonly made: ReadonlyArray<Made>
}

/** When an entry expires, as far as it is known, in epoch milliseconds. */
export type Expires = { readonly min: number; readonly max: number }

/** The state of a key from a position on. */
export interface State {
  readonly position: number
  readonly change: Change
  readonly commit: Commit
  readonly expires: Expires | undefined
}

/** Whether readers see an entry; "unsure" if it may have expired or not. */
export type Presence = "present" | "absent" | "unsure"

/** @param from earliest and `to` latest time by the clock of the store, in epoch milliseconds */
export const presence = (state: State | undefined, from: number, to: number): Presence => {
  if (state === undefined || state.change.op === "delete") return "absent"
  if (state.expires === undefined || state.expires.min > to) return "present"
  return state.expires.max <= from ? "absent" : "unsure"
}

const isFor = (operation: Operation, change: Change): boolean =>
  operation.op === change.op && operation.namespace === change.namespace && operation.key === change.key

/** The records of a write and its operations, in order; a delete may have made no record. */
const align = (write: Write | undefined, changes: ReadonlyArray<Change>): ReadonlyArray<Made> => {
  const operations = write?.action.operations ?? []
  let next = 0
  return changes.map(change => {
    let index = next
    while (index < operations.length && !isFor(operations[index]!, change)) index++
    const operation = operations[index]
    if (operation !== undefined) next = index + 1
    return { change, operation }
  })
}

/** When a set makes its entry expire, as its answer says, or else from when it was sent and recorded. */
export const expiresOf = (
  write: Write | undefined,
  operation: SetOperation | undefined,
  timestamp: number,
  clockError: number
): Expires | undefined => {
  if (write === undefined || operation?.ttlMs === undefined) return undefined
  // A repeated write may have been applied in two epochs, and have an answer of each.
  const answered = answers(write).find(({ result }) => result.entry?.updatedAt === timestamp)?.result.entry?.expiresAt
  if (typeof answered === "number") return { min: answered, max: answered }
  const { ttlMs } = operation
  return { min: write.wallStart - clockError + ttlMs, max: timestamp + clockError + ttlMs }
}

export class Log {
  readonly commits: ReadonlyArray<Commit>
  /** By address, the states of the key, each at its first position. */
  private readonly states = new Map<string, Array<State>>()
  private readonly keys = new Map<string, Set<string>>()
  private readonly positions: ReadonlyArray<number>

  /**
   * @param records dense in `seq`, from 1 on
   * @param writes by actor
   * @param isWhole whether the log was read to its end; else its last write may be known in part
   */
  constructor(
    readonly records: ReadonlyArray<Change>,
    writes: ReadonlyMap<string, Write>,
    clockError: number,
    readonly isWhole = true
  ) {
    const commits: Array<Commit> = []
    const positions: Array<number> = []
    for (let start = 0; start < records.length; ) {
      const { actor, seq } = records[start]!
      const write = writes.get(actor)
      let end = start + 1
      if (write !== undefined) while (end < records.length && records[end]!.actor === actor) end++
      const index = commits.length
      const made = align(write, records.slice(start, end))
      commits.push({ index, actor, write, first: seq, last: seq + end - start - 1, made })
      for (; start < end; start++) positions.push(index + 1)
    }
    this.commits = commits
    this.positions = positions
    for (const commit of commits) {
      for (const { change, operation } of commit.made) {
        const set = operation?.op === "set" ? operation : undefined
        const expires = expiresOf(commit.write, set, change.timestamp, clockError)
        this.add({ position: commit.index + 1, change, commit, expires })
      }
    }
  }

  private add(state: State): void {
    const { namespace, key } = state.change
    const address = addressOf(state.change)
    const states = this.states.get(address)
    if (states === undefined) {
      this.states.set(address, [state])
      const keys = this.keys.get(namespace)
      if (keys === undefined) this.keys.set(namespace, new Set([key]))
      else keys.add(key)
    } else if (states.at(-1)!.position === state.position) states[states.length - 1] = state
    else states.push(state)
  }

  get end(): number {
    return this.records.length
  }

  /** The first position at which the record is visible; 0 for `seq` 0. */
  positionOf(seq: number): number {
    return seq === 0 ? 0 : (this.positions[seq - 1] ?? this.commits.length + 1)
  }

  /** Whether a log that ends with this `seq` was ever visible. */
  isBoundary(seq: number): boolean {
    return seq === 0 || this.commits[this.positionOf(seq) - 1]?.last === seq
  }

  statesOf(address: string): ReadonlyArray<State> {
    return this.states.get(address) ?? []
  }

  /** What the key is at a position, `undefined` before its first record. */
  stateAt(address: string, position: number): State | undefined {
    const states = this.statesOf(address)
    let low = 0
    let high = states.length
    while (low < high) {
      const middle = (low + high) >>> 1
      if (states[middle]!.position <= position) low = middle + 1
      else high = middle
    }
    return states[low - 1]
  }

  keysOf(namespace: string): Iterable<string> {
    return this.keys.get(namespace) ?? []
  }
}

/** Records that a client received at a time. */
interface Observation {
  readonly time: number
  readonly epoch: string
  readonly changes: ReadonlyArray<H.Change>
  readonly by: string
  readonly operation: number | undefined
}

/** The epoch of a service that has none. */
export const noEpoch = ""

const observations = (history: H.History, ops: ReadonlyArray<Op>): ReadonlyArray<Observation> => [
  ...ops.filter(isPoll).flatMap((op): ReadonlyArray<Observation> => {
    if (op.outcome.type !== "ok") return []
    const { changes, epoch = noEpoch } = op.outcome.result
    return [{ time: op.end, epoch, changes, by: name(op), operation: op.id }]
  }),
  ...history.events.flatMap((event): ReadonlyArray<Observation> => {
    if (event.type !== "seen") return []
    const { changes, epoch = noEpoch, follower, time } = event
    return [{ time, epoch, changes, by: `follower ${follower}`, operation: undefined }]
  })
]

/** The records of an epoch, dense from 1 on, and contradictions between their observers. */
export interface Joined {
  readonly records: ReadonlyArray<H.Change>
  /** A client received a record that comes after one that no client received. */
  readonly hole: Violation | undefined
  readonly violations: ReadonlyArray<Violation>
}

const join = (seen: ReadonlyArray<Observation>): Joined => {
  const first = new Map<number, { readonly change: H.Change; readonly by: Observation }>()
  const violations: Array<Violation> = []
  const violation = (message: string, ...by: ReadonlyArray<Observation>): Violation => ({
    rule: "log",
    message,
    operations: by.flatMap(({ operation }) => (operation === undefined ? [] : [operation]))
  })
  for (const by of seen) {
    for (const change of by.changes) {
      const known = first.get(change.seq)
      if (known === undefined) first.set(change.seq, { change, by })
      else if (known.change !== change && JSON.stringify(known.change) !== JSON.stringify(change)) {
        const both = `${text(change)} to ${by.by}, and ${text(known.change)} to ${known.by.by}`
        violations.push(violation(`seq ${change.seq} is ${both}`, by, known.by))
      }
    }
  }
  const sorted = [...first.values()].sort((a, b) => a.change.seq - b.change.seq)
  const end = sorted.findIndex(({ change }, index) => change.seq !== index + 1)
  const beyond = sorted[end]
  const hole =
    beyond &&
    violation(`no client saw a record with seq ${end + 1}, and ${beyond.by.by} saw seq ${beyond.change.seq}`, beyond.by)
  const records = sorted.slice(0, beyond === undefined ? undefined : end).map(({ change }) => change)
  return { records, hole, violations }
}

/** By epoch, the observed records of its log. */
export const joined = (history: H.History, ops: ReadonlyArray<Op>): ReadonlyMap<string, Joined> =>
  new Map(
    [...Map.groupBy(observations(history, ops), ({ epoch }) => epoch)].map(([epoch, seen]) => [epoch, join(seen)])
  )
