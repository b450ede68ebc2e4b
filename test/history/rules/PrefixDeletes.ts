/** A delete of a prefix deletes the first entries that it selects, in order: all of them, or `limit`. */
import { compare } from "../../../src/Client/KeyOrder.ts"
import { addressOf, type PrefixDelete } from "../History.ts"
import type { Commit, Log, Presence } from "../Log.ts"
import type { Write } from "../Operations.ts"
import { type Rule, text } from "../Violation.ts"

interface Applied {
  readonly write: Write
  readonly prefixDelete: PrefixDelete
  readonly commit: Commit
  readonly log: Log
  /** Whether an address had an entry immediately before. */
  readonly presenceOf: (address: string) => Presence
  /** Whether the log may lack the last of its records. */
  readonly isInPart: boolean
  /** Whether its answer belongs to this log. */
  readonly isAnswered: boolean
}

interface Wrong {
  readonly rule: Rule
  readonly predicate: string
}

export const check = (applied: Applied): ReadonlyArray<Wrong> => {
  const { commit, isInPart, isAnswered, log, presenceOf, prefixDelete, write } = applied
  const { limit, namespace, prefix } = prefixDelete
  const wrong: Array<Wrong> = []
  const report = (rule: Rule, predicate: string) => wrong.push({ rule, predicate })
  const changes = commit.made.map(({ change }) => change)
  const keys = [...log.keysOf(namespace)].filter(key => key.startsWith(prefix)).sort(compare)
  let next = 0
  let others: Presence = "absent"
  for (const key of keys) {
    const found = presenceOf(addressOf({ namespace, key }))
    const change = changes[next]
    if (change?.op === "delete" && change.namespace === namespace && change.key === key) {
      next++
      if (found === "absent") report("expiry", `deletes ${key} at seq ${change.seq}, which is absent or had expired`)
    } else if (next < limit && found === "present" && !(isInPart && next === changes.length)) {
      report("batch", `is at seq ${commit.first} without its delete of ${key}`)
    } else if (next >= limit && found !== "absent" && others !== "present") others = found
  }
  const left = changes[next]
  if (left !== undefined)
    report("batch", `has seq ${left.seq} (${left.key}), which it does not delete, or not in order`)
  if (changes.length > limit) report("batch", `has ${changes.length} records at seq ${commit.first}`)
  const other = changes.find(({ timestamp }) => timestamp !== changes[0]!.timestamp)
  if (other !== undefined) report("batch", `has two times, at seq ${commit.first} and at seq ${other.seq}`)
  if (write.outcome.type !== "ok" || !isAnswered) return wrong
  const { removed } = write.outcome.result
  const isMoreRight = others === "unsure" || removed?.more === (others === "present")
  if (removed?.count !== changes.length || !isMoreRight) {
    report("outcome", `was answered ${text(removed)}, and deleted ${changes.length} of those at seq ${commit.first}`)
  }
  return wrong
}
