/**
 * Checks a history. One sequence of commits, the change log, must explain all requests: each operation has a position
 * in it between its invocation and its answer (strict serializability, which includes linearizability of each key).
 * Every write names its actor and every answer its version or `seq`. Therefore the positions are known, and the check
 * takes n · log n steps without a search.
 */
import type * as H from "./History.ts"
import { joined, Log, noEpoch } from "./Log.ts"
import { answers, isList, isWrite, operations, type Violation, type Write } from "./Operations.ts"
import * as Epochs from "./rules/Epochs.ts"
import * as Order from "./rules/Order.ts"
import * as Pages from "./rules/Pages.ts"
import * as Writes from "./rules/Writes.ts"

/** All violations of a history. Throws if it is not well-formed. */
export const check = (history: H.History): ReadonlyArray<Violation> => {
  const { clockError } = history.header
  const ops = operations(history)
  const writes = new Map(ops.filter(isWrite).map(op => [op.action.actor, op]))
  const logs = joined(history, ops)
  const epochs = Epochs.epochs(history, ops)
  const ofEpochs = epochs.flatMap((epoch, index): ReadonlyArray<Violation> => {
    const isLast = index === epochs.length - 1
    const { hole, records, violations } = logs.get(epoch.name) ?? { records: [], hole: undefined, violations: [] }
    const log = new Log(records, writes, clockError, isLast)
    const isOf = (name: string | undefined = noEpoch) => name === epoch.name
    const own = epoch.operations(log)
    // A repeated write may have been applied in one epoch and, when that was lost, in the next one again.
    const isAnswered = (write: Write) =>
      write.tries.length === 1 || answers(write).every(({ one }) => epochs.length === 1 || epoch.has(one))
    const context: Writes.Context = { log, writes, clockError, isAnswered, own: new Set<Write>(own.filter(isWrite)) }
    return [
      ...violations,
      ...(isLast && hole !== undefined ? [hole] : []),
      ...Writes.check(context),
      ...Writes.repeated(ops.filter(isWrite), epoch),
      // The end of a replaced log may have been lost before any client read it.
      ...(isLast ? Writes.acknowledged(context) : []),
      ...Order.check({ log, ops: own, events: history.events, isOf, clockError, isAnswered }),
      ...Pages.followers(history.events, log, isOf)
    ]
  })
  return [...Epochs.changes(history, ops, epochs), ...ofEpochs]
}

/** The number of operations of each kind and outcome, to report on a workload. */
export const counts = (history: H.History): Readonly<Record<string, number>> => {
  const names = operations(history).flatMap(op => {
    const { type } = op.outcome
    return [
      `${op.action.type} ${type}`,
      ...(isWrite(op) && op.action.prefixDelete !== undefined ? [`removal ${type}`] : []),
      ...(isWrite(op) ? op.tries.slice(1).map(({ outcome }) => `repetition ${outcome.type}`) : []),
      ...(isList(op) && op.action.reverse ? [`reverse ${type}`] : []),
      ...(isList(op) && op.action.count ? [`count ${type}`] : [])
    ]
  })
  for (const { type } of history.events) if (type === "open" || type === "reset") names.push(type)
  return Object.fromEntries([...Map.groupBy(names, name => name)].map(([name, all]) => [name, all.length]))
}
