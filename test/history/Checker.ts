/**
 * Checks a history. One sequence of commits, the change log, must explain all requests: each operation has a position
 * in it between its invocation and its answer (strict serializability, which includes linearizability of each key).
 * Every write names its actor and every answer its version or `seq`. Therefore the positions are known, and the check
 * takes n · log n steps without a search.
 */
import type * as H from "./History.ts"
import { Log } from "./Log.ts"
import * as Observations from "./Observations.ts"
import { answers, isList, isWrite, operations, type Write } from "./Operations.ts"
import * as EpochChanges from "./rules/EpochChanges.ts"
import * as Epochs from "./rules/Epochs.ts"
import * as Followers from "./rules/Followers.ts"
import * as Order from "./rules/Order.ts"
import * as Retries from "./rules/Retries.ts"
import * as Writes from "./rules/Writes.ts"
import type { Violation } from "./Violation.ts"

/** All violations of a history. Throws if it is not well-formed. */
export const check = (history: H.History): ReadonlyArray<Violation> => {
  const { clockError } = history.header
  const ops = operations(history)
  const writes = new Map(ops.filter(isWrite).map(op => [op.action.actor, op]))
  const joined = Observations.joined(history, ops)
  const epochs = Epochs.epochs(history, ops)
  const ofEpochs = epochs.flatMap((epoch, index): ReadonlyArray<Violation> => {
    const isLast = index === epochs.length - 1
    const { hole, records, violations } = joined.get(epoch.name) ?? { records: [], hole: undefined, violations: [] }
    const log = new Log(records, writes, clockError, isLast)
    const isOf = (name: string | undefined = Observations.noEpoch) => name === epoch.name
    const own = epoch.operations(log)
    // A repeated write may have been applied in one epoch and, when that was lost, in the next one again.
    const isAnswered = (write: Write) =>
      write.tries.length === 1 || answers(write).every(({ one }) => epochs.length === 1 || epoch.has(one))
    const context: Writes.Context = { log, writes, clockError, isAnswered, own: new Set<Write>(own.filter(isWrite)) }
    return [
      ...violations,
      ...(isLast && hole !== undefined ? [hole] : []),
      ...Writes.check(context),
      ...Retries.check(ops.filter(isWrite), epoch),
      // The end of a replaced log may have been lost before any client read it.
      ...(isLast ? Writes.acknowledged(context) : []),
      ...Order.check({ log, ops: own, events: history.events, isOf, clockError, isAnswered }),
      ...Followers.check(history.events, log, isOf)
    ]
  })
  return [...EpochChanges.check(history, ops, epochs), ...ofEpochs]
}

/** The number of operations of each kind and outcome, to report on a workload. */
export const counts = (history: H.History): Readonly<Record<string, number>> => {
  const found: Record<string, number> = {}
  const add = (name: string) => {
    found[name] = (found[name] ?? 0) + 1
  }
  for (const op of operations(history)) {
    const { type } = op.outcome
    add(`${op.action.type} ${type}`)
    if (isWrite(op) && op.action.prefixDelete !== undefined) add(`removal ${type}`)
    if (isWrite(op)) for (const one of op.tries.slice(1)) add(`repetition ${one.outcome.type}`)
    if (isList(op) && op.action.reverse) add(`reverse ${type}`)
    if (isList(op) && op.action.count) add(`count ${type}`)
  }
  for (const event of history.events) if (event.type === "open" || event.type === "reset") add(event.type)
  return found
}
