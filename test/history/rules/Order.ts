/**
 * Each operation takes effect at one moment between its invocation and its answer: there is a position of the log for
 * each, at which it is what it says, such that an operation that ended before another one was invoked has no later
 * position. The positions of writes, whole lists and polls stand in the log; each other read gets the first position
 * that is not before those of all operations that had ended. If these positions fail, all do: no search is needed.
 */
import type * as H from "../History.ts"
import type { Log } from "../Log.ts"
import { isEffective, isRefusedTry, isWrite, name, type Op, type Write } from "../Operations.ts"
import { of, type Violation } from "../Violation.ts"
import * as Reads from "./Reads.ts"

/** Something known of the log at a time: it had reached this position. */
interface Known {
  readonly time: number
  readonly position: number
  readonly op: Op | undefined
  readonly who: string
}

const start: Known = { time: Number.NEGATIVE_INFINITY, position: 0, op: undefined, who: "the start" }

/** The writes of the log by the time of their invocation, each with the earliest of it and all that come after it. */
class Invocations {
  private readonly times: ReadonlyArray<number>
  private readonly earliest: ReadonlyArray<{ readonly position: number; readonly write: Write }>

  constructor(log: Log) {
    const sorted = log.commits
      .flatMap(({ index, write }) => (write === undefined ? [] : [{ position: index + 1, write }]))
      .sort((a, b) => a.write.start - b.write.start)
    this.times = sorted.map(({ write }) => write.start)
    let least = { position: Number.POSITIVE_INFINITY, write: undefined as Write | undefined }
    this.earliest = sorted
      .reduceRight<Array<{ position: number; write: Write }>>((all, one) => {
        if (one.position < least.position) least = one
        all.push({ position: least.position, write: least.write! })
        return all
      }, [])
      .reverse()
  }

  /** The first write of the log that was invoked after a time. */
  after(time: number): { readonly position: number; readonly write: Write } | undefined {
    let low = 0
    let high = this.times.length
    while (low < high) {
      const middle = (low + high) >>> 1
      if (this.times[middle]! <= time) low = middle + 1
      else high = middle
    }
    return this.earliest[low]
  }
}

/** What followers of streams knew, and when. */
const seen = (events: ReadonlyArray<H.Event>, log: Log, isOf: (epoch: string | undefined) => boolean) =>
  events.flatMap((event): ReadonlyArray<Known> => {
    if (event.type !== "seen" || !isOf(event.epoch)) return []
    const last = Math.max(event.changes.at(-1)?.seq ?? 0, event.lastSeq)
    return [
      {
        time: event.time,
        position: log.positionOf(last),
        op: undefined,
        who: `follower ${event.follower} at seq ${last}`
      }
    ]
  })

export interface Context {
  readonly log: Log
  /** In the order of invocation, those that belong to this log's epoch. */
  readonly ops: ReadonlyArray<Op>
  readonly events: ReadonlyArray<H.Event>
  readonly isOf: (epoch: string | undefined) => boolean
  readonly clockError: number
  /** Whether the answer to a write is of this epoch. */
  readonly isAnswered: (write: Write) => boolean
}

export const check = ({ clockError, events, isAnswered, isOf, log, ops }: Context): ReadonlyArray<Violation> => {
  const violations: Array<Violation> = []
  const invocations = new Invocations(log)
  const positions = new Map(log.commits.map(({ index, write }) => [write, index + 1]))
  // All that becomes known, in order of time. The position of an operation is set before its end is reached.
  const known = seen(events, log, isOf)
  const placed = new Map<Op, number>()
  const ends = ops.filter(
    op => op.outcome.type !== "unknown" && op.end < Number.POSITIVE_INFINITY && (!isWrite(op) || isAnswered(op))
  )
  const order = [
    ...known.map(one => ({ time: one.time, one, op: undefined })),
    ...ends.map(op => ({ time: op.end, one: undefined, op }))
  ].sort((a, b) => a.time - b.time)
  let next = 0
  let floor: Known = start

  const learnUntil = (time: number) => {
    for (; next < order.length && order[next]!.time < time; next++) {
      const { one, op } = order[next]!
      const position = one?.position ?? placed.get(op!)
      if (position === undefined || position <= floor.position) continue
      floor = one ?? { time: op!.end, position, op, who: name(op!) }
    }
  }

  for (const op of ops) {
    learnUntil(op.start)
    const position = isWrite(op) ? positions.get(op) : undefined
    if (position !== undefined) {
      placed.set(op, position)
      if (floor.position < position) continue
      const commit = log.commits[position - 1]!
      violations.push(
        of(
          "order",
          op,
          `stands in the log at seq ${commit.first}, before seq ${log.commits[floor.position - 1]?.last ?? log.end + 1}, which ${floor.who} knew before it was invoked`,
          floor.op
        )
      )
      continue
    }
    // What is known of a log that was replaced may end before this write.
    if (!log.isWhole && isWrite(op) && isEffective(op)) {
      placed.set(op, log.commits.length + 1)
      continue
    }
    const later = invocations.after(op.end)
    // Once a write is applied, its repetition is not refused.
    const applied = isRefusedTry(op) ? positions.get(op.write) : undefined
    if (applied !== undefined && applied <= floor.position) {
      const { first } = log.commits[applied - 1]!
      violations.push(of("retry", op, `was refused, and had been applied before it was repeated, at seq ${first}`))
      continue
    }
    const ceiling = Math.max(
      floor.position,
      Math.min(
        (later?.position ?? Number.POSITIVE_INFINITY) - 1,
        (applied ?? Number.POSITIVE_INFINITY) - 1,
        log.commits.length
      )
    )
    const found = Reads.place(op, { log, floor: floor.position, ceiling, clockError })
    if (typeof found === "number") placed.set(op, found)
    else if (found !== undefined) {
      const { position, predicate, rule } = found
      const isBehind =
        ((rule === "read" || rule === "retry") && found.isForm !== true) ||
        (position !== undefined && position > log.commits.length)
      if (!log.isWhole && later === undefined && isBehind) {
        placed.set(op, log.commits.length + 1)
        continue
      }
      const isStale = position !== undefined && position < floor.position
      const isEarly = position !== undefined && position > ceiling && later !== undefined
      const why = isStale
        ? `, and ${floor.who} had known a later state, seq ${log.commits[floor.position - 1]?.last ?? log.end + 1}, before it was invoked`
        : isEarly
          ? `, which comes after ${name(later.write)}, invoked when it had ended`
          : ""
      violations.push(of(rule, op, `${predicate}${why}`, isStale ? floor.op : isEarly ? later.write : undefined))
    }
  }
  return violations
}
