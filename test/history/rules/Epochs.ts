/**
 * Assigns operations to logs, if logs replace each other, and checks the epochs of answers. An operation that may
 * belong to either of two logs is checked against neither, except a write that one of them has.
 */
import type * as H from "../History.ts"
import { type Log, noEpoch } from "../Log.ts"
import { isList, isPoll, isRead, isWrite, type Op, of, type Try, type Violation } from "../Operations.ts"

export interface Epoch {
  readonly name: string
  /** When a client first saw it: the epochs before it had ended. */
  readonly begun: number
  /** The operations that belong to this epoch, in the order of invocation, given its log. */
  readonly operations: (log: Log) => ReadonlyArray<Op>
  /** Whether the moment of an operation is certainly in this epoch. */
  readonly has: (op: Op | Try) => boolean
}

export const epochOf = (op: Op): string | undefined =>
  (isList(op) || isRead(op) || isPoll(op)) && op.outcome.type === "ok"
    ? (op.outcome.result.epoch ?? noEpoch)
    : undefined

interface Times {
  /** When an observation of the epoch first ended: it had started by then. */
  begun: number
  /** When an operation was invoked that observed the epoch: it had not ended. */
  alive: number
}

const times = (history: H.History, ops: ReadonlyArray<Op>): Map<string, Times> => {
  const found = new Map<string, Times>()
  const observe = (name: string, start: number, end: number) => {
    const known = found.get(name)
    if (known === undefined) found.set(name, { begun: end, alive: start })
    else {
      known.begun = Math.min(known.begun, end)
      known.alive = Math.max(known.alive, start)
    }
  }
  for (const op of ops) {
    const epoch = epochOf(op)
    if (epoch !== undefined) observe(epoch, op.start, op.end)
  }
  for (const event of history.events) {
    if (event.type === "seen") observe(event.epoch ?? noEpoch, Number.NEGATIVE_INFINITY, event.time)
  }
  return found
}

/** The epochs of a history in the order in which they were first seen; a history that shows none has one. */
export const epochs = (history: H.History, ops: ReadonlyArray<Op>): ReadonlyArray<Epoch> => {
  const found = times(history, ops)
  if (found.size === 0) found.set(noEpoch, { begun: 0, alive: 0 })
  const ordered = [...found].sort(([, a], [, b]) => a.begun - b.begun)
  const isPossible = (op: Op | Try, index: number): boolean => {
    const before = ordered[index - 1]?.[1]
    const after = ordered[index + 1]?.[1]
    return !(before !== undefined && op.end < before.alive) && !(after !== undefined && op.start > after.begun)
  }
  const isOnly = (op: Op | Try, index: number): boolean =>
    isPossible(op, index) && ordered.every((_, other) => other === index || !isPossible(op, other))
  return ordered.map(([name, { begun }], index) => ({
    name,
    begun,
    has: op => isOnly(op, index),
    operations: log => {
      const there = new Set<Op | undefined>(log.commits.map(({ write }) => write))
      return ops.filter(op => {
        const answered = epochOf(op)
        if (answered !== undefined) return answered === name
        return isOnly(op, index) || (isWrite(op) && there.has(op))
      })
    }
  }))
}

interface Connection {
  readonly opened: number
  /** The epoch that the follower named, or else the first one that it received; `undefined` until then. */
  epoch: string | undefined
}

/** How the epochs of a history follow each other. */
interface Sequence {
  /** The epoch after this one, if it had been seen before a time. */
  readonly successor: (name: string, time: number) => Epoch | undefined
  /** Whether a request was sent after a time whose answer has this epoch. */
  readonly continuesAfter: (name: string, time: number) => boolean
}

const sequence = (ops: ReadonlyArray<Op>, epochs: ReadonlyArray<Epoch>): Sequence => {
  const lastSent = new Map<string, number>()
  for (const op of ops) {
    const answered = epochOf(op)
    if (answered !== undefined) lastSent.set(answered, op.start)
  }
  return {
    successor: (name, time) => {
      const next = epochs[epochs.findIndex(epoch => epoch.name === name) + 1]
      return next !== undefined && next.begun < time ? next : undefined
    },
    continuesAfter: (name, time) => (lastSent.get(name) ?? Number.NEGATIVE_INFINITY) > time
  }
}

/** The epoch in the answer to an operation, or the failure that the log of the named epoch was replaced. */
const checkAnswer = (op: Op, { continuesAfter, successor }: Sequence): ReadonlyArray<Violation> => {
  const answered = epochOf(op)
  const named = isPoll(op) ? op.action.epoch : undefined
  const violations: Array<Violation> = []
  const report = (predicate: string) => violations.push(of("epoch", op, predicate))
  if (answered !== undefined) {
    if (named !== undefined && answered !== named) {
      report(`named the epoch ${named}, and was answered from the epoch ${answered}`)
    }
    const next = successor(answered, op.start)
    if (next !== undefined) {
      report(`was answered from the epoch ${answered}, and ${next.name} had been seen before it was invoked`)
    }
  } else if (named !== undefined && op.outcome.type === "fail" && op.outcome.isGone && continuesAfter(named, op.end)) {
    report(`was answered that the epoch ${named} had ended, and it continues`)
  }
  return violations
}

const checkFollowers = (
  events: ReadonlyArray<H.Event>,
  { continuesAfter, successor }: Sequence
): ReadonlyArray<Violation> => {
  const violations: Array<Violation> = []
  const connections = new Map<string, Connection>()
  const report = (follower: string, predicate: string) =>
    violations.push({ rule: "epoch", message: `follower ${follower} ${predicate}`, operations: [] })
  for (const event of events) {
    if (event.type === "open") {
      connections.set(event.follower, { opened: event.time, epoch: event.epoch })
      continue
    }
    if (event.type !== "seen" && event.type !== "reset") continue
    const connection = connections.get(event.follower)
    if (connection === undefined) continue
    if (event.type === "reset") {
      const { epoch } = connection
      if (epoch !== undefined && continuesAfter(epoch, event.time)) {
        report(event.follower, `was reset, and the epoch ${epoch} continues`)
      }
      continue
    }
    const { epoch = noEpoch, lastSeq } = event
    connection.epoch ??= epoch
    if (connection.epoch !== epoch) {
      report(event.follower, `read the epoch ${connection.epoch}, and got seq ${lastSeq} of the epoch ${epoch}`)
      connection.epoch = epoch
    }
    const next = successor(epoch, connection.opened)
    if (next !== undefined) {
      const had = `${next.name} had been seen before it connected`
      report(event.follower, `got seq ${lastSeq} of the epoch ${epoch}, and ${had}`)
    }
  }
  return violations
}

export const changes = (
  { events }: H.History,
  ops: ReadonlyArray<Op>,
  epochs: ReadonlyArray<Epoch>
): ReadonlyArray<Violation> => {
  const seen = sequence(ops, epochs)
  return [...ops.flatMap(op => checkAnswer(op, seen)), ...checkFollowers(events, seen)]
}
