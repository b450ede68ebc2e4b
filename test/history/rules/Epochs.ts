/**
 * Assigns operations to logs, if logs replace each other. Lists and reads of the log have their epoch in the answer; the
 * others are assigned by time. An operation that may belong to either of two logs is checked against neither, except a
 * write that one of them has.
 */
import type * as H from "../History.ts"
import type { Log } from "../Log.ts"
import { noEpoch } from "../Observations.ts"
import { isList, isPoll, isRead, isWrite, type Op, type Try } from "../Operations.ts"

export interface Epoch {
  readonly name: string
  /** When a client first saw it: the epochs before it had ended. */
  readonly begun: number
  /** The operations that belong to this epoch, in the order of invocation, given its log. */
  readonly operations: (log: Log) => ReadonlyArray<Op>
  /** Whether the moment of an operation is certainly in this epoch. */
  readonly has: (op: Op | Try) => boolean
}

/** The epoch in the answer to an operation. */
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
