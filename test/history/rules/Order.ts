/**
 * Each operation takes effect at one moment between its invocation and its answer. Each operation has a position of the
 * log at which its answer is right. An operation that ended before another one was invoked has no later position. The log
 * has the positions of writes, whole lists and polls. Every other read gets the first position that is not before those
 * of all operations that had ended. If these positions are impossible, all others are: no search is needed.
 */
import type * as H from "../History.ts"
import type { Log } from "../Log.ts"
import { isEffective, isRefusedTry, isWrite, name, type Op, of, type Violation, type Write } from "../Operations.ts"
import * as Reads from "./Reads.ts"

type Known = { readonly time: number; readonly position: number; readonly op: Op | undefined; readonly who: string }

const start: Known = { time: Number.NEGATIVE_INFINITY, position: 0, op: undefined, who: "the start" }

/** The writes of the log in order of invocation, each with the earliest position of it and of all later ones. */
class Invocations {
  private readonly times: ReadonlyArray<number>
  private readonly earliest: ReadonlyArray<{ readonly position: number; readonly write: Write }>

  constructor(log: Log) {
    const sorted = log.commits
      .flatMap(({ index, write }) => (write === undefined ? [] : [{ position: index + 1, write }]))
      .sort((a, b) => a.write.start - b.write.start)
    this.times = sorted.map(({ write }) => write.start)
    let first = { position: Number.POSITIVE_INFINITY, write: undefined as Write | undefined }
    this.earliest = sorted
      .reduceRight<Array<{ position: number; write: Write }>>((all, one) => {
        if (one.position < first.position) first = one
        all.push({ position: first.position, write: first.write! })
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

/** The positions that followers of streams had seen, and when. */
const seen = (events: ReadonlyArray<H.Event>, log: Log, isOf: (epoch: string | undefined) => boolean) =>
  events.flatMap((event): ReadonlyArray<Known> => {
    if (event.type !== "seen" || !isOf(event.epoch)) return []
    const last = Math.max(event.changes.at(-1)?.seq ?? 0, event.lastSeq)
    const who = `follower ${event.follower} at seq ${last}`
    return [{ time: event.time, position: log.positionOf(last), op: undefined, who }]
  })

export interface Context {
  readonly log: Log
  /** The operations of this log's epoch, in the order of invocation. */
  readonly ops: ReadonlyArray<Op>
  readonly events: ReadonlyArray<H.Event>
  readonly isOf: (epoch: string | undefined) => boolean
  readonly clockError: number
  /** Whether the answer to a write is of this epoch. */
  readonly isAnswered: (write: Write) => boolean
}

class Knowledge {
  /** The latest position known so far. */
  floor = start
  private readonly placed = new Map<Op, number>()
  private readonly order: ReadonlyArray<{ readonly time: number; readonly seen?: Known; readonly ended?: Op }>
  private next = 0

  constructor({ events, isAnswered, isOf, log, ops }: Context) {
    const ended = ops.filter(
      op => op.outcome.type !== "unknown" && op.end < Number.POSITIVE_INFINITY && (!isWrite(op) || isAnswered(op))
    )
    this.order = [
      ...seen(events, log, isOf).map(seen => ({ time: seen.time, seen })),
      ...ended.map(ended => ({ time: ended.end, ended }))
    ].sort((a, b) => a.time - b.time)
  }

  /** Sets the position of an operation, before its end is reached. */
  place(op: Op, position: number): void {
    this.placed.set(op, position)
  }

  /** Raises the floor to what was known at a time. */
  advance(time: number): void {
    for (; this.next < this.order.length && this.order[this.next]!.time < time; this.next++) {
      const { ended, seen } = this.order[this.next]!
      const position = seen?.position ?? this.placed.get(ended!)
      if (position === undefined || position <= this.floor.position) continue
      this.floor = seen ?? { time: ended!.end, position, op: ended, who: name(ended!) }
    }
  }
}

/** The position of an operation, if it has one, and why it is impossible. */
type Placement = { readonly position?: number; readonly violation?: Violation }

/** The last `seq` at a position. */
const seqAt = (log: Log, position: number): number => log.commits[position - 1]?.last ?? log.end + 1

const placeWrite = (op: Op, position: number, { log }: Context, floor: Known): Placement => {
  if (floor.position < position) return { position }
  const { first } = log.commits[position - 1]!
  const known = `seq ${seqAt(log, floor.position)}, which ${floor.who} knew before it was invoked`
  return { position, violation: of("order", op, `is in the log at seq ${first}, before ${known}`, floor.op) }
}

/** Places an operation that is not a write of the log. `applied` is the position of the write that it repeats. */
const placeOther = (
  op: Op,
  applied: number | undefined,
  { clockError, log }: Context,
  floor: Known,
  invocations: Invocations
): Placement => {
  // The known part of a replaced log may end before this write.
  if (!log.isWhole && isWrite(op) && isEffective(op)) return { position: log.commits.length + 1 }
  // Once a write is applied, its repetition is not refused.
  if (applied !== undefined && applied <= floor.position) {
    const { first } = log.commits[applied - 1]!
    return { violation: of("retry", op, `was refused, and had been applied before it was repeated, at seq ${first}`) }
  }
  const later = invocations.after(op.end)
  const bounds = [later?.position, applied].map(bound => (bound ?? Number.POSITIVE_INFINITY) - 1)
  const ceiling = Math.max(floor.position, Math.min(...bounds, log.commits.length))
  const found = Reads.place(op, { log, floor: floor.position, ceiling, clockError })
  if (found === undefined) return {}
  if (typeof found === "number") return { position: found }
  const { position, predicate, rule } = found
  const isBehind =
    ((rule === "read" || rule === "retry") && found.isForm !== true) ||
    (position !== undefined && position > log.commits.length)
  if (!log.isWhole && later === undefined && isBehind) return { position: log.commits.length + 1 }
  if (position !== undefined && position < floor.position) {
    const known = `${floor.who} had known a later state, seq ${seqAt(log, floor.position)}, before it was invoked`
    return { violation: of(rule, op, `${predicate}, and ${known}`, floor.op) }
  }
  if (position !== undefined && position > ceiling && later !== undefined) {
    const why = `which comes after ${name(later.write)}, invoked when it had ended`
    return { violation: of(rule, op, `${predicate}, ${why}`, later.write) }
  }
  return { violation: of(rule, op, predicate) }
}

export const check = (context: Context): ReadonlyArray<Violation> => {
  const { log, ops } = context
  const violations: Array<Violation> = []
  const invocations = new Invocations(log)
  const positions = new Map(log.commits.map(({ index, write }) => [write, index + 1]))
  const knowledge = new Knowledge(context)
  for (const op of ops) {
    knowledge.advance(op.start)
    const { floor } = knowledge
    const written = isWrite(op) ? positions.get(op) : undefined
    const applied = isRefusedTry(op) ? positions.get(op.write) : undefined
    const { position, violation } =
      written === undefined
        ? placeOther(op, applied, context, floor, invocations)
        : placeWrite(op, written, context, floor)
    if (position !== undefined) knowledge.place(op, position)
    if (violation !== undefined) violations.push(violation)
  }
  return violations
}
