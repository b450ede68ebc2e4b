/** The positions of the log that match the answer to a read, a refused write, or a delete of an absent entry. */

import { addressOf, type Operation } from "../History.ts"
import { presence, type State } from "../Log.ts"
import { type Get, isGet, isList, isPoll, isRead, isRefusedTry, type Op, type Try, text } from "../Operations.ts"
import type { Misplaced, Window } from "./Pages.ts"
import * as Pages from "./Pages.ts"

/** The first position of the window that agrees, or any other one, or none. */
type Search = { readonly in: number } | { readonly out: number | undefined }

/**
 * Tries each state that the keys go through in the window, from the first one on.
 *
 * @param agrees whether a position agrees
 */
const search = (
  addresses: ReadonlyArray<string>,
  { ceiling, floor, log }: Window,
  agrees: (position: number) => boolean
): Search => {
  if (agrees(floor)) return { in: floor }
  const all = [...new Set([0, ...addresses.flatMap(address => log.statesOf(address).map(({ position }) => position))])]
  const agreeing = all.sort((a, b) => a - b).filter(agrees)
  const inside = agreeing.find(position => position > floor && position <= ceiling)
  return inside === undefined ? { out: agreeing.at(-1) } : { in: inside }
}

const get = (op: Get, window: Window): number | undefined | Misplaced => {
  if (op.outcome.type !== "ok") return undefined
  const { clockError, log } = window
  const { result } = op.outcome
  const address = addressOf(op.action)
  const from = op.wallStart - clockError
  const to = op.wallEnd + clockError
  const stateAt = (position: number) => log.stateAt(address, position)
  if ("notModified" in result) {
    const version = result.notModified
    const found = search([address], window, position => {
      const state = stateAt(position)
      return state?.change.version === version && presence(state, from, to) !== "absent"
    })
    if ("in" in found) return found.in
    return { rule: "read", predicate: `was answered that version ${version} is still current`, ...at(found.out) }
  }
  const { entry } = result
  if (entry === null) {
    const found = search([address], window, position => presence(stateAt(position), from, to) !== "present")
    if ("in" in found) return found.in
    return { rule: "read", predicate: "saw nothing", ...at(found.out) }
  }
  if (entry.namespace !== op.action.namespace || entry.key !== op.action.key) {
    return { rule: "read", predicate: `was given another entry, ${text(entry)}`, isForm: true }
  }
  const found = search([address], window, position => Pages.shows(entry, stateAt(position)))
  if (entry.expiresAt !== null && entry.expiresAt <= from) {
    return {
      rule: "expiry",
      predicate: `saw version ${entry.version}, which had expired at ${entry.expiresAt}, at ${op.wallStart}`
    }
  }
  if ("in" in found) return found.in
  const isHidden = log.commits.some(
    ({ made, index }) =>
      made.some(({ change }) => addressOf(change) === address && change.version === entry.version) &&
      stateAt(index + 1)?.change.version !== entry.version
  )
  if (isHidden)
    return { rule: "batch", predicate: `saw version ${entry.version}, which a batch had replaced before it ended` }
  const hint = found.out === undefined ? ", which the log does not have" : ""
  return { rule: "read", predicate: `saw version ${entry.version}, ${text(entry.value)}${hint}`, ...at(found.out) }
}

const at = (position: number | undefined) => (position === undefined ? {} : { position })

/** Whether the precondition of an operation may fail for a state. */
const mayFail = (operation: Operation, state: State | undefined, from: number, to: number): boolean => {
  const { ifVersion } = operation
  if (ifVersion === undefined) return false
  const found = presence(state, from, to)
  if (ifVersion === 0) return found !== "absent"
  return found !== "present" || state?.change.version !== ifVersion
}

const refused = (op: Try, currentVersion: number | null | undefined, window: Window): number | Misplaced => {
  const { clockError, log } = window
  const from = op.wallStart - clockError
  const to = op.wallEnd + clockError
  const { operations } = op.action
  const written = new Set<string>()
  const conditional = operations.filter(operation => {
    const address = addressOf(operation)
    // Once the batch itself has changed the key, the state that it finds is not in the log.
    const isOwn = written.has(address)
    written.add(address)
    return operation.ifVersion !== undefined && !isOwn
  })
  const changesAndTests = operations.filter(({ ifVersion }) => ifVersion !== undefined).length > conditional.length
  if (changesAndTests) return window.floor
  const found = search(conditional.map(addressOf), window, position =>
    conditional.some(operation => {
      const state = log.stateAt(addressOf(operation), position)
      if (!mayFail(operation, state, from, to)) return false
      if (currentVersion === undefined) return true
      const isThere = presence(state, from, to)
      return currentVersion === null
        ? isThere !== "present"
        : isThere !== "absent" && state?.change.version === currentVersion
    })
  )
  if ("in" in found) return found.in
  const answered = currentVersion === undefined ? "" : `, with version ${currentVersion}`
  return { rule: "read", predicate: `was refused by its precondition${answered}`, ...at(found.out) }
}

/** A write whose answer says that it deleted nothing, and that has set nothing. */
const ineffective = (op: Try, window: Window): number | undefined | Misplaced => {
  const { clockError, log } = window
  const { operations, prefixDelete } = op.action
  if (op.outcome.type !== "ok") return undefined
  const { removed, results } = op.outcome.result
  // `outcome` reports a write that has been lost.
  if (results.some(result => !("deleted" in result && !result.deleted)) || (removed?.count ?? 0) > 0) return undefined
  if (removed?.more)
    return { rule: "outcome", predicate: "deleted nothing, and was answered that more is left", isForm: true }
  const removable = prefixDelete === undefined ? [] : [...log.keysOf(prefixDelete.namespace)]
  const addresses = [
    ...operations.map(addressOf),
    ...removable
      .filter(key => prefixDelete !== undefined && key.startsWith(prefixDelete.prefix))
      .map(key => addressOf({ namespace: prefixDelete?.namespace ?? "", key }))
  ]
  const found = search(addresses, window, position =>
    addresses.every(
      address =>
        presence(log.stateAt(address, position), op.wallStart - clockError, op.wallEnd + clockError) !== "present"
    )
  )
  if ("in" in found) return found.in
  return { rule: "read", predicate: "was answered that it deleted nothing", ...at(found.out) }
}

/** A position of an operation that is not a write of the log; `undefined` if it has none, or why none is possible. */
export const place = (op: Op, window: Window): number | undefined | Misplaced => {
  if (isGet(op)) return get(op, window)
  if (isRead(op)) return Pages.read(op, window)
  if (isList(op)) return Pages.list(op, window)
  if (isPoll(op)) return Pages.poll(op, window)
  if (op.outcome.type === "unknown") return undefined
  if (op.outcome.type === "ok") return ineffective(op, window)
  if (op.outcome.refused === undefined) return undefined
  const placed = refused(op, op.outcome.refused.currentVersion, window)
  // What comes later may be its own effect.
  return isRefusedTry(op) && typeof placed === "object" ? { ...placed, rule: "retry" } : placed
}
