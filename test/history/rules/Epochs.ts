/**
 * Which operations belong to which log, where logs replace each other. Lists and reads of the log tell their epoch; the
 * others are placed by time. What may belong to either of two logs is held to neither, save a write that one of them has.
 */
import type * as H from "../History.ts"
import type { Log } from "../Log.ts"
import { isList, isPoll, isWrite, type Op } from "../Operations.ts"
import { noEpoch } from "../Sightings.ts"

export interface Epoch {
  readonly name: string
  /** The operations that belong to this epoch, in the order of invocation, given its log. */
  readonly operations: (log: Log) => ReadonlyArray<Op>
}

const epochOf = (op: Op): string | undefined =>
  (isList(op) || isPoll(op)) && op.outcome.type === "ok" ? (op.outcome.result.epoch ?? noEpoch) : undefined

interface Times {
  /** When an observation of the epoch first ended: it had begun. */
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

/** The epochs of a history in the order in which they were first seen; one of a history that shows none. */
export const epochs = (history: H.History, ops: ReadonlyArray<Op>): ReadonlyArray<Epoch> => {
  const found = times(history, ops)
  if (found.size === 0) found.set(noEpoch, { begun: 0, alive: 0 })
  const ordered = [...found].sort(([, a], [, b]) => a.begun - b.begun)
  const isPossible = (op: Op, index: number): boolean => {
    const before = ordered[index - 1]?.[1]
    const after = ordered[index + 1]?.[1]
    return !(before !== undefined && op.end < before.alive) && !(after !== undefined && op.start > after.begun)
  }
  return ordered.map(([name], index) => ({
    name,
    operations: log => {
      const there = new Set<Op | undefined>(log.commits.map(({ write }) => write))
      return ops.filter(op => {
        const told = epochOf(op)
        if (told !== undefined) return told === name
        if (!isPossible(op, index)) return false
        const isOnly = ordered.every((_, other) => other === index || !isPossible(op, other))
        return isOnly || (isWrite(op) && there.has(op))
      })
    }
  }))
}
