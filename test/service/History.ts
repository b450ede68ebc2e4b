/**
 * The requests of clients and their answers, checked against what the service has afterwards.
 *
 * Every write has an actor of its own, so that a change record identifies its write.
 */
import type { Operation, OperationResult } from "../../src/exports/client.ts"
import type { Change, Entry } from "../../src/Kv/Api.ts"

type Results = ReadonlyArray<OperationResult>
type Record = typeof Change.Type

interface Write {
  readonly operations: ReadonlyArray<Operation>
  /** Absent until the answer came: the write may have been committed or not. */
  results: Results | undefined
}

/** The writes of all clients. */
export class History {
  readonly writes = new Map<string, Write>()
  /** How many writes were acknowledged. */
  acknowledged = 0

  /** Records a write before it is sent. */
  send(actor: string, operations: ReadonlyArray<Operation>): void {
    this.writes.set(actor, { operations, results: undefined })
  }

  /** Records the acknowledgment of a write. */
  acknowledge(actor: string, results: Results): void {
    const write = this.writes.get(actor)
    if (write === undefined) throw new Error(`${actor} has sent nothing`)
    write.results = results
    this.acknowledged++
  }
}

/** The state of a key at one position of the log; absent if it was deleted. */
interface State {
  readonly version: number
  readonly entry: typeof Entry.Type | undefined
}

type States = Map<string, State>

const addressOf = ({ namespace, key }: { readonly namespace: string; readonly key: string }) =>
  JSON.stringify([namespace, key])

const text = (value: unknown): string => {
  const json = JSON.stringify(value)
  return json.length > 120 ? `${json.slice(0, 120)}… (${json.length})` : json
}

/** Applies a write to the states, and returns the answer and change records that it must have. */
const perform = (actor: string, { operations }: Write, states: States, first: number, timestamp: number) => {
  const records: Array<Omit<Record, "tenantId">> = []
  const results = operations.map((operation): OperationResult => {
    const { op, namespace, key } = operation
    const before = states.get(addressOf(operation)) ?? { version: 0, entry: undefined }
    if (op === "delete" && before.entry === undefined) return { deleted: false }
    const version = before.version + 1
    const value = op === "set" ? operation.value : null
    records.push({ seq: first + records.length, op, namespace, key, value, version, actor, timestamp })
    const entry =
      op === "set"
        ? { namespace, key, value, version, updatedBy: actor, updatedAt: timestamp, expiresAt: null }
        : undefined
    states.set(addressOf(operation), { version, entry })
    return op === "set" ? { version } : { deleted: true }
  })
  return { records, results }
}

/** The change records grouped into runs of the same actor. */
const runsOf = (log: ReadonlyArray<Record>): ReadonlyArray<readonly [Record, ...Array<Record>]> => {
  const runs: Array<[Record, ...Array<Record>]> = []
  for (const record of log) {
    const last = runs.at(-1)
    if (last !== undefined && last[0].actor === record.actor) last.push(record)
    else runs.push([record])
  }
  return runs
}

const withoutTenant = ({ seq, op, namespace, key, value, version, actor, timestamp }: Record) => ({
  seq,
  op,
  namespace,
  key,
  value,
  version,
  actor,
  timestamp
})

/**
 * All violations of the service's guarantees, in sentences: `seq` is dense and time does not decrease; a
 * write is in the log whole, once and contiguous, or not at all; an acknowledged write is in the log, with the
 * returned answer; and the entries equal the replayed log.
 */
export const contradictions = (
  history: History,
  log: ReadonlyArray<Record>,
  entries: ReadonlyArray<typeof Entry.Type>
): ReadonlyArray<string> => {
  const found: Array<string> = []
  for (const [index, { seq, timestamp }] of log.entries()) {
    if (seq !== index + 1) found.push(`seq ${seq} is at the position of ${index + 1}`)
    const previous = log[index - 1]
    if (previous !== undefined && previous.timestamp > timestamp) found.push(`time falls at seq ${seq}`)
  }

  const states: States = new Map()
  const seen = new Set<string>()
  for (const run of runsOf(log)) {
    const [{ actor, seq, timestamp }] = run
    const write = history.writes.get(actor)
    if (write === undefined) found.push(`seq ${seq} is of ${actor}, who wrote nothing`)
    else if (seen.has(actor)) found.push(`${actor} comes up again at seq ${seq}`)
    else {
      const expected = perform(actor, write, states, seq, timestamp)
      const actual = run.map(withoutTenant)
      if (JSON.stringify(actual) !== JSON.stringify(expected.records)) {
        found.push(
          `${actor} has ${actual.length} records at seq ${seq}, ${text(actual)}, not ${expected.records.length}, ${text(expected.records)}`
        )
      }
      if (write.results !== undefined && JSON.stringify(write.results) !== JSON.stringify(expected.results)) {
        found.push(`${actor} was answered ${text(write.results)}, and the log has ${text(expected.results)}`)
      }
    }
    seen.add(actor)
  }

  for (const [actor, { results }] of history.writes) {
    if (results === undefined || seen.has(actor)) continue
    const changedNothing = results.every(result => "deleted" in result && !result.deleted)
    if (!changedNothing) found.push(`${actor} was acknowledged with ${text(results)} and is not in the log`)
  }

  const actual = new Map(entries.map(entry => [addressOf(entry), entry]))
  if (actual.size !== entries.length) found.push("the lists have an entry twice")
  for (const address of new Set([...states.keys(), ...actual.keys()])) {
    const expected = states.get(address)?.entry
    const entry = actual.get(address)
    if (JSON.stringify(entry) !== JSON.stringify(expected)) {
      found.push(`the entry ${address} is ${text(entry ?? null)}, and the log comes to ${text(expected ?? null)}`)
    }
  }
  return found
}
