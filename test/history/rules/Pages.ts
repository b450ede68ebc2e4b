/** Pages of lists and of the log: their position, and what they must hold. */
import { compare } from "../../../src/Storage/KeyOrder.ts"
import { addressOf, type Change, type Entry } from "../History.ts"
import { type Log, presence, type State } from "../Log.ts"
import type { List, Poll } from "../Operations.ts"
import { text } from "../Violation.ts"
import type { Misplaced, Window } from "./Window.ts"

/** A page of the log that holds less than this ends because the log did. */
const smallPage = 1024 * 1024

/** A snapshot of the log up to `seq` lies in the window, and has no part of a write. */
const snapshot = (what: string, seq: number, { ceiling, floor, log }: Window): number | Misplaced => {
  const position = log.positionOf(seq)
  if (seq > log.end) return { rule: "log", predicate: `${what} ${seq}, and the log ends at ${log.end}`, position }
  if (!log.isBoundary(seq)) {
    const { first, last } = log.commits[position - 1]!
    return { rule: "batch", predicate: `${what} ${seq}, which lies within a batch, seq ${first} to ${last}` }
  }
  if (position >= floor && position <= ceiling) return position
  return { rule: "read", predicate: `${what} ${seq}`, position }
}

/** Whether an entry is the state of its key, as far as the log tells. */
export const shows = (entry: Entry, state: State | undefined): boolean => {
  if (state === undefined || state.change.op === "delete") return false
  const { change, expires } = state
  const fields = [change.version, change.value, change.actor, change.timestamp]
  if (JSON.stringify([entry.version, entry.value, entry.updatedBy, entry.updatedAt]) !== JSON.stringify(fields)) {
    return false
  }
  if (expires === undefined) return entry.expiresAt === null
  return entry.expiresAt !== null && entry.expiresAt >= expires.min && entry.expiresAt <= expires.max
}

/** The keys that a list may have, in order, with their states. */
const candidates = ({ action }: List, log: Log, position: number) =>
  [...log.keysOf(action.namespace)]
    .filter(
      key => key.startsWith(action.prefix) && (action.afterKey === undefined || compare(key, action.afterKey) > 0)
    )
    .sort(compare)
    .map(key => ({ key, state: log.stateAt(addressOf({ namespace: action.namespace, key }), position) }))

export const list = (op: List, window: Window): number | undefined | Misplaced => {
  if (op.outcome.type !== "ok") return undefined
  const { clockError, log } = window
  const { items, lastSeq, more } = op.outcome.result
  const { afterKey, limit, namespace, prefix } = op.action
  const position = snapshot("has Kv-Last-Seq", lastSeq, window)
  if (typeof position !== "number") return position
  const wrong = (predicate: string): Misplaced => ({ rule: "list", predicate })
  if (limit === undefined ? more : items.length > limit || (more && items.length === 0)) {
    return wrong(`has ${items.length} items${more ? " and a link to more" : ""}`)
  }
  for (const [index, { key, namespace: found }] of items.entries()) {
    const previous = items[index - 1]?.key ?? afterKey
    if (found !== namespace || !key.startsWith(prefix)) return wrong(`has the item ${found} ${key}`)
    if (previous !== undefined && compare(previous, key) >= 0) return wrong(`has ${key} after ${previous}`)
  }
  const from = op.wallStart - clockError
  const to = op.wallEnd + clockError
  const last = items.at(-1)?.key
  const byKey = new Map(items.map(item => [item.key, item]))
  let isMore = false
  for (const { key, state } of candidates(op, log, position)) {
    const found = presence(state, from, to)
    if (more && last !== undefined && compare(key, last) > 0) {
      isMore ||= found !== "absent"
      continue
    }
    const item = byKey.get(key)
    byKey.delete(key)
    if (item === undefined) {
      if (found === "present") return wrong(`at seq ${lastSeq} is without ${key}, ${text(state?.change)}`)
    } else if (!shows(item, state)) {
      return wrong(`at seq ${lastSeq} has ${text(item)}, and the log has ${text(state?.change ?? null)}`)
    } else if (item.expiresAt !== null && item.expiresAt <= from) {
      return { rule: "expiry", predicate: `at ${op.wallStart} has ${key}, which had expired at ${item.expiresAt}` }
    }
  }
  for (const item of byKey.values()) return wrong(`at seq ${lastSeq} has ${text(item)}, and the log has it not`)
  return more && !isMore ? wrong(`has a link to more after ${last}, and there is nothing`) : position
}

const isOf = (tenant: string | undefined) => (change: Change) => tenant === undefined || change.tenantId === tenant

/** The first `seq` that is wrong in what a reader got, who was at `after` and is at `to` now. */
export const wrongSeq = (
  log: Log,
  after: number,
  to: number,
  tenant: string | undefined,
  received: ReadonlyArray<Change>
): string | undefined => {
  const changes = log.isWhole ? received : received.filter(({ seq }) => seq <= log.end)
  const expected = log.records.slice(after, to).filter(isOf(tenant))
  const length = Math.max(expected.length, changes.length)
  for (let index = 0; index < length; index++) {
    const [got, due] = [changes[index]?.seq, expected[index]?.seq]
    if (got === due) continue
    if (got === undefined) return `nothing where seq ${due} is due`
    return due === undefined ? `seq ${got} where nothing is due` : `seq ${got} where seq ${due} is due`
  }
  return undefined
}

export const poll = (op: Poll, window: Window): number | undefined | Misplaced => {
  if (op.outcome.type !== "ok") return undefined
  const { log } = window
  const { changes, lastSeq } = op.outcome.result
  const { after, limit, tenant } = op.action
  if (lastSeq < after) return { rule: "epoch", predicate: `is at seq ${lastSeq}, and no new epoch had begun` }
  const wrong = wrongSeq(log, after, lastSeq, tenant, changes)
  if (wrong !== undefined) return { rule: "follower", predicate: `got ${wrong}` }
  const isWhole = changes.length < limit && JSON.stringify(changes).length < smallPage
  if (isWhole) return snapshot("read the log to its end at seq", lastSeq, window)
  if (changes.length > limit) return { rule: "follower", predicate: `got ${changes.length} records` }
  const position = log.positionOf(lastSeq)
  return position <= window.ceiling ? position : { rule: "read", predicate: `saw seq ${lastSeq}`, position }
}
