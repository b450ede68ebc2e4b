/** Pages of lists and of the log: their position, and their expected content, also to streams and WebSockets. */

import { compare } from "../../../src/Client/KeyOrder.ts"
import type * as H from "../History.ts"
import { addressOf, type Change, type Entry } from "../History.ts"
import { type Log, type Presence, presence, type State } from "../Log.ts"
import { type List, type Poll, type Read, type Rule, text, type Violation } from "../Operations.ts"

export interface Window {
  readonly log: Log
  /** The first and the last position that the operation may have. */
  readonly floor: number
  readonly ceiling: number
  readonly clockError: number
}

/** Why no position of the window agrees, as a predicate to the operation. */
export interface Misplaced {
  readonly rule: Rule
  readonly predicate: string
  /** A position out of the window that would agree. */
  readonly position?: number
  /** Whether it is wrong regardless of the log. */
  readonly isForm?: true
}

/** A page of the log that holds less than this ends because the log did. */
const smallPage = 1024 * 1024

/** A snapshot of the log up to `seq` is within the window, and has no part of a write. */
const snapshot = (what: string, seq: number, { ceiling, floor, log }: Window): number | Misplaced => {
  const position = log.positionOf(seq)
  if (seq > log.end) return { rule: "log", predicate: `${what} ${seq}, and the log ends at ${log.end}`, position }
  if (!log.isBoundary(seq)) {
    const { first, last } = log.commits[position - 1]!
    return { rule: "batch", predicate: `${what} ${seq}, which is within a batch, seq ${first} to ${last}` }
  }
  if (position >= floor && position <= ceiling) return position
  return { rule: "read", predicate: `${what} ${seq}`, position }
}

/** Whether an entry is the state of its key, as far as the log shows. */
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

/** Whether a list may have a key, on whichever page. */
const isSelected = ({ end = "", prefix, start = "" }: List["action"], key: string): boolean =>
  key.startsWith(prefix) && compare(key, start) >= 0 && (end === "" || compare(key, end) < 0)

const inOrder = ({ reverse }: List["action"]): typeof compare => (reverse ? (a, b) => compare(b, a) : compare)

/** The keys that a list may have, on whichever page, in order, with their states. */
const candidates = ({ action }: List, log: Log, position: number) =>
  [...log.keysOf(action.namespace)]
    .filter(key => isSelected(action, key))
    .sort(inOrder(action))
    .map(key => ({ key, state: log.stateAt(addressOf({ namespace: action.namespace, key }), position) }))

/** Why the count of a list is wrong. */
const wrongCount = (
  { action }: List,
  count: number | undefined,
  found: ReadonlyArray<Presence>
): string | undefined => {
  if (action.count === undefined) return count === undefined ? undefined : `counts ${count} entries unasked`
  const most = found.filter(one => one !== "absent").length
  const least = found.filter(one => one === "present").length
  if (count !== undefined && count >= least && count <= most) return undefined
  return `counts ${count} entries, and there are ${least === most ? least : `${least} to ${most}`}`
}

export const list = (op: List, window: Window): number | undefined | Misplaced => {
  if (op.outcome.type !== "ok") return undefined
  const { clockError, log } = window
  const { count, items, lastSeq, more } = op.outcome.result
  const { afterKey, limit, namespace } = op.action
  const order = inOrder(op.action)
  const wrong = (predicate: string): Misplaced => ({ rule: "list", predicate })
  if (limit === undefined ? more : items.length > limit || (more && items.length === 0)) {
    return wrong(`has ${items.length} items${more ? " and a link to more" : ""}`)
  }
  for (const [index, { key, namespace: found }] of items.entries()) {
    const previous = items[index - 1]?.key ?? afterKey
    if (found !== namespace || !isSelected(op.action, key)) return wrong(`has the item ${found} ${key}`)
    if (previous !== undefined && order(previous, key) >= 0) return wrong(`has ${key} after ${previous}`)
  }
  const position = snapshot("has Kv-Last-Seq", lastSeq, window)
  if (typeof position !== "number") return position
  const from = op.wallStart - clockError
  const to = op.wallEnd + clockError
  const last = items.at(-1)?.key
  const byKey = new Map(items.map(item => [item.key, item]))
  let isMore = false
  const all = candidates(op, log, position).map(one => ({ ...one, found: presence(one.state, from, to) }))
  const presences = all.map(({ found }) => found)
  const miscounted = wrongCount(op, count, presences)
  if (miscounted !== undefined) return wrong(`at seq ${lastSeq} ${miscounted}`)
  for (const { found, key, state } of all) {
    if (afterKey !== undefined && order(key, afterKey) <= 0) continue
    if (more && last !== undefined && order(key, last) > 0) {
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

/** Several entries, each in its state at the position of the answer. */
export const read = (op: Read, window: Window): number | undefined | Misplaced => {
  if (op.outcome.type !== "ok") return undefined
  const { clockError, log } = window
  const { entries, lastSeq } = op.outcome.result
  const { addresses } = op.action
  const wrong = (predicate: string): Misplaced => ({ rule: "read", predicate, isForm: true })
  if (entries.length !== addresses.length) return wrong(`got ${entries.length} entries for ${addresses.length} keys`)
  for (const [index, entry] of entries.entries()) {
    if (entry !== null && addressOf(entry) !== addressOf(addresses[index]!)) {
      return wrong(`was given another entry, ${text(entry)}`)
    }
  }
  const position = snapshot("has Kv-Last-Seq", lastSeq, window)
  if (typeof position !== "number") return position
  const from = op.wallStart - clockError
  const to = op.wallEnd + clockError
  for (const [index, address] of addresses.entries()) {
    const entry = entries[index] ?? null
    const state = log.stateAt(addressOf(address), position)
    if (entry === null ? presence(state, from, to) === "present" : !shows(entry, state)) {
      return wrong(`at seq ${lastSeq} has ${text(entry)}, and the log has ${text(state?.change ?? null)}`)
    }
    if (entry !== null && entry.expiresAt !== null && entry.expiresAt <= from) {
      const { expiresAt, key } = entry
      return { rule: "expiry", predicate: `at ${op.wallStart} has ${key}, which had expired at ${expiresAt}` }
    }
  }
  return position
}

const isOf = (tenant: string | undefined) => (change: Change) => tenant === undefined || change.tenantId === tenant

/** The first wrong `seq` in the records of a reader that advanced from `after` to `to`. */
export const wrongSeq = (
  log: Log,
  after: number,
  to: number,
  tenant: string | undefined,
  received: ReadonlyArray<Change>
): string | undefined => {
  let previous = after
  for (const { seq } of received) {
    if (seq <= previous || seq > to) return `seq ${seq} after seq ${previous}, up to seq ${to}`
    previous = seq
  }
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
  if (lastSeq < after) return { rule: "epoch", predicate: `is at seq ${lastSeq}, and no new epoch had started` }
  const wrong = wrongSeq(log, after, lastSeq, tenant, changes)
  if (wrong !== undefined) return { rule: "follower", predicate: `got ${wrong}` }
  const isWhole = changes.length < limit && JSON.stringify(changes).length < smallPage
  if (isWhole) return snapshot("read the log to its end at seq", lastSeq, window)
  if (changes.length > limit) return { rule: "follower", predicate: `got ${changes.length} records` }
  const position = log.positionOf(lastSeq)
  return position <= window.ceiling ? position : { rule: "read", predicate: `saw seq ${lastSeq}`, position }
}

/** A follower, over all its connections. */
interface Follower {
  readonly tenant: string | undefined
  /** The last `seq` that it knows to have been scanned; `undefined` after a reset, until it opens again. */
  position: number | undefined
  /** Whether it reads this epoch's log; `undefined` before it has received anything. */
  isHere: boolean | undefined
}

/** @param isOf whether an epoch is that of the log */
export const followers = (
  events: ReadonlyArray<H.Event>,
  log: Log,
  isOf: (epoch: string | undefined) => boolean
): ReadonlyArray<Violation> => {
  const violations: Array<Violation> = []
  const all = new Map<string, Follower>()
  const report = (follower: string, predicate: string) =>
    violations.push({ rule: "follower", message: `follower ${follower} ${predicate}`, operations: [] })
  for (const event of events) {
    if (event.type === "open") {
      const known = all.get(event.follower)
      if (
        known !== undefined &&
        known.isHere !== false &&
        known.position !== undefined &&
        known.position !== event.after
      ) {
        report(event.follower, `resumed after seq ${event.after}, and had read up to ${known.position}`)
      }
      all.set(event.follower, { tenant: event.tenant, position: event.after, isHere: known?.isHere })
    } else if (event.type === "reset") {
      const follower = all.get(event.follower)
      if (follower !== undefined) follower.position = undefined
    } else if (event.type === "seen") {
      const { changes, lastSeq } = event
      const follower = all.get(event.follower)
      if (follower === undefined) {
        report(event.follower, `got seq ${lastSeq} without a connection`)
        continue
      }
      follower.isHere = isOf(event.epoch)
      if (!follower.isHere) continue
      const after = follower.position
      if (after === undefined) report(event.follower, `got seq ${lastSeq} after it was reset`)
      else if (lastSeq < after) report(event.follower, `got the position ${lastSeq} after ${after}`)
      else {
        const wrong = wrongSeq(log, after, lastSeq, follower.tenant, changes)
        if (wrong !== undefined) report(event.follower, `got ${wrong}, when it had read up to ${after}`)
      }
      follower.position = lastSeq
    } else if (event.type === "end" && log.isWhole) {
      for (const [name, { position = 0, tenant }] of all) {
        const missed = wrongSeq(log, position, log.end, tenant, [])
        if (missed !== undefined) report(name, `has read up to seq ${position} in the end, ${missed}`)
      }
    }
  }
  return violations
}
