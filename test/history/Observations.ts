/** What the followers of a history saw, joined into one log for each epoch. */
import type * as H from "./History.ts"
import { isPoll, name, type Op } from "./Operations.ts"
import { text, type Violation } from "./Violation.ts"

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
