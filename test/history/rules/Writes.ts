/** Rules of the log alone: versions, preconditions, whole writes, results, and expiry. */

import { compare } from "../../../src/Client/KeyOrder.ts"
import { addressOf, type Change, type Operation, type OperationResult, type PrefixDelete } from "../History.ts"
import { type Commit, expiresOf, type Log, type Presence, presence, type State } from "../Log.ts"
import { answers, isEffective, name, of, type Rule, text, type Violation, type Write } from "../Operations.ts"
import type { Epoch } from "./Epochs.ts"

const expiryActor = "expiry"

export interface Context {
  readonly log: Log
  /** All writes of the history by actor, and those that belong to this log's epoch. */
  readonly writes: ReadonlyMap<string, Write>
  readonly own: ReadonlySet<Write>
  /** Whether the answer to a write is of this epoch. */
  readonly isAnswered: (write: Write) => boolean
  readonly clockError: number
}

const at = ({ key, namespace, seq }: Change): string => `seq ${seq} (${namespace} ${key})`

const who = ({ actor, write }: Commit): string => (write === undefined ? actor : name(write))

/** A violation of a record, in which writes are concerned. */
const broken = (rule: Rule, message: string, ...writes: ReadonlyArray<Write | undefined>): Violation => ({
  rule,
  message,
  operations: writes.flatMap(write => (write === undefined ? [] : [write.id]))
})

/** The commit that is checked, and what the log has before it. */
interface Step {
  readonly commit: Commit
  /** By address, the state before the next record of the commit. */
  readonly states: Map<string, State>
  readonly clockError: number
}

const checkTime = (change: Change, previous: Change | undefined, { writes }: Context): ReadonlyArray<Violation> => {
  if (previous === undefined || previous.timestamp <= change.timestamp) return []
  const message = `time falls from ${previous.timestamp} to ${change.timestamp} at seq ${change.seq}`
  return [broken("log", message, writes.get(previous.actor), writes.get(change.actor))]
}

/** Applies a record to the states. Its version must be the next one, and a delete must find an entry. */
const advance = (
  change: Change,
  operation: Operation | undefined,
  { clockError, commit, states }: Step
): ReadonlyArray<Violation> => {
  const violations: Array<Violation> = []
  const address = addressOf(change)
  const before = states.get(address)
  const expected = (before?.change.version ?? 0) + 1
  if (change.version !== expected) {
    const previous = before === undefined ? "" : ` of ${who(before.commit)}, seq ${before.change.seq}`
    const has = `${at(change)} of ${who(commit)} has version ${change.version}`
    const message = `${has}, and follows version ${expected - 1}${previous}`
    violations.push(broken("chain", message, commit.write, before?.commit.write))
  }
  if (change.op === "delete" && before?.change.op !== "set") {
    violations.push(broken("chain", `${at(change)} of ${who(commit)} deletes what is absent`, commit.write))
  }
  const set = operation?.op === "set" ? operation : undefined
  const expires = expiresOf(commit.write, set, change.timestamp, clockError)
  states.set(address, { position: commit.index + 1, change, commit, expires })
  return violations
}

/** Applies records that no operation of a write describes. */
const advanceAll = (step: Step): ReadonlyArray<Violation> =>
  step.commit.made.flatMap(({ change }) => advance(change, undefined, step))

const checkExpiry = ({ clockError, commit, states }: Step): ReadonlyArray<Violation> => {
  const [{ change }] = commit.made as [Commit["made"][number]]
  const before = states.get(addressOf(change))
  const isDue = before?.expires !== undefined && before.expires.min - clockError <= change.timestamp
  if (isDue && change.op === "delete") return []
  const expires = before?.expires === undefined ? "never" : `at ${before.expires.min} at the earliest`
  const setter = before === undefined ? "no write" : who(before.commit)
  const message = `${at(change)} is an expiry at ${change.timestamp} of what expires ${expires}, set by ${setter}`
  return [broken("expiry", message, before?.commit.write)]
}

/** Whether the next operation of the commit finds an entry. */
const presenceFor = (address: string, write: Write, { clockError, commit, states }: Step): Presence =>
  presence(states.get(address), write.wallStart - clockError, commit.made[0]!.change.timestamp)

const checkPrecondition = (
  operation: Operation,
  write: Write,
  found: Presence,
  { commit, states }: Step
): ReadonlyArray<Violation> => {
  const { ifVersion } = operation
  if (ifVersion === undefined) return []
  const state = states.get(addressOf(operation))
  const current = state?.change.op === "set" ? state.change.version : 0
  if (ifVersion === current && (ifVersion === 0 || found !== "absent")) return []
  // Before a set, the expiry of an entry is recorded, unless the same write has set the entry.
  const isUnrecorded = operation.op === "delete" || state?.commit === commit
  if (ifVersion === 0 && isUnrecorded && found !== "present") return []
  const since = state === undefined ? "" : `, since ${who(state.commit)}, seq ${state.change.seq}`
  const versions = `where ${operation.key} was at version ${current}, not ${ifVersion}`
  return [of("chain", write, `was applied at seq ${commit.first} ${versions}${since}`, state?.commit.write)]
}

/** The operation that made a record, if any, found what the log has before, and wrote what the record has. */
const checkOperation = (
  operation: Operation,
  change: Change | undefined,
  { found, isInPart, step, write }: { found: Presence; isInPart: boolean; step: Step; write: Write }
): ReadonlyArray<Violation> => {
  const { commit, states } = step
  if (change === undefined) {
    if (isInPart || (operation.op !== "set" && found !== "present")) return []
    return [of("batch", write, `is at seq ${commit.first} without its ${operation.op} of ${operation.key}`)]
  }
  const violations: Array<Violation> = []
  if (found === "absent" && states.get(addressOf(operation))?.change.op === "set") {
    const message = `${at(change)} of ${name(write)} replaces what had expired, without a record of that`
    violations.push(broken("expiry", message, write))
  }
  if (operation.op === "set" && JSON.stringify(operation.value) !== JSON.stringify(change.value)) {
    const wrote = `${name(write)} wrote ${text(operation.value)}`
    violations.push(broken("log", `${at(change)} has the value ${text(change.value)}, and ${wrote}`, write))
  }
  return [...violations, ...advance(change, operation, step)]
}

const resultOf = (operation: Operation, change: Change | undefined): OperationResult =>
  operation.op === "set" ? { version: change?.version ?? 0 } : { deleted: change !== undefined }

/** The records of a write are those of its operations, in order and at one time. */
const checkOperations = (
  write: Write,
  isInPart: boolean,
  step: Step
): { readonly violations: ReadonlyArray<Violation>; readonly results: ReadonlyArray<OperationResult> } => {
  const { commit } = step
  const made = new Map(commit.made.map(({ change, operation }) => [operation, change]))
  const violations: Array<Violation> = []
  const results: Array<OperationResult> = []
  for (const operation of write.action.operations) {
    const change = made.get(operation)
    const found = presenceFor(addressOf(operation), write, step)
    results.push(resultOf(operation, change))
    violations.push(
      ...checkPrecondition(operation, write, found, step),
      ...checkOperation(operation, change, { found, isInPart, step, write })
    )
  }
  for (const { change, operation } of commit.made) {
    if (operation === undefined) {
      violations.push(broken("batch", `${at(change)} is no operation of ${name(write)}, or not in order`, write))
    }
    if (change.timestamp !== commit.made[0]!.change.timestamp) {
      violations.push(of("batch", write, `has two times, at seq ${commit.first} and at seq ${change.seq}`))
    }
  }
  return { violations, results }
}

/** A write is in the log once, unless it was refused, and complete. `earlier` is the commit that it has before. */
const checkWrite = (
  write: Write,
  earlier: Commit | undefined,
  { isAnswered: isAnsweredHere, log, own }: Context,
  step: Step
): ReadonlyArray<Violation> => {
  const { clockError, commit } = step
  const violations: Array<Violation> = []
  if (earlier !== undefined) {
    const rule = write.tries.length > 1 ? "retry" : "batch"
    violations.push(of(rule, write, `is in the log at seq ${earlier.first} and again at seq ${commit.first}`))
  }
  if (write.outcome.type === "fail") {
    violations.push(of("outcome", write, `was refused, and the log has it at seq ${commit.first}`))
  }
  const isInPart = !log.isWhole && commit.last === log.end
  const isAnswered = own.has(write) && isAnsweredHere(write) && !isInPart
  const { prefixDelete } = write.action
  if (prefixDelete !== undefined) {
    const presenceOf = (address: string) => presenceFor(address, write, step)
    const found = checkPrefixDelete({ write, prefixDelete, commit, log, presenceOf, isInPart, isAnswered })
    return [...violations, ...found.map(({ predicate, rule }) => of(rule, write, predicate)), ...advanceAll(step)]
  }
  const { results, violations: ofOperations } = checkOperations(write, isInPart, step)
  const ofAnswer = isAnswered ? checkAnswer(write, commit, results, clockError) : []
  return [...violations, ...ofOperations, ...ofAnswer]
}

export const check = (context: Context): ReadonlyArray<Violation> => {
  const violations: Array<Violation> = []
  const states = new Map<string, State>()
  const seen = new Map<string, Commit>()
  let previous: Change | undefined
  for (const commit of context.log.commits) {
    const step: Step = { commit, states, clockError: context.clockError }
    for (const { change } of commit.made) {
      violations.push(...checkTime(change, previous, context))
      previous = change
    }
    if (commit.write !== undefined) {
      violations.push(...checkWrite(commit.write, seen.get(commit.actor), context, step))
      seen.set(commit.actor, commit)
    } else if (commit.actor === expiryActor) violations.push(...checkExpiry(step), ...advanceAll(step))
    else {
      const message = `${at(commit.made[0]!.change)} is of ${commit.actor}, which wrote nothing`
      violations.push(broken("log", message), ...advanceAll(step))
    }
  }
  return violations
}

/** Acknowledged writes that changed something are in the log. */
export const acknowledged = ({ log, own }: Context): ReadonlyArray<Violation> => {
  const logged = new Set(log.commits.map(({ write }) => write))
  return [...own]
    .filter(write => isEffective(write) && !logged.has(write))
    .map(write => of("outcome", write, "was acknowledged, and is not in the log"))
}

/** The lifetime in the answer to a write of one entry is the one that the write asked for. */
const checkLifetime = (write: Write, expiresAt: number | null, clockError: number): ReadonlyArray<Violation> => {
  const [operation] = write.action.operations
  const ttl = operation?.op === "set" ? operation.ttlMs : undefined
  const fits =
    ttl === undefined
      ? expiresAt === null
      : expiresAt !== null &&
        expiresAt >= write.wallStart + ttl - clockError &&
        expiresAt <= write.wallEnd + ttl + clockError
  if (fits) return []
  return [
    of("expiry", write, `with a lifetime of ${ttl ?? "any"} ms, sent at ${write.wallStart}, expires at ${expiresAt}`)
  ]
}

/** @param results of the operations, as the log has them */
const checkAnswer = (
  write: Write,
  { first, made }: Commit,
  results: ReadonlyArray<OperationResult>,
  clockError: number
): ReadonlyArray<Violation> => {
  if (write.outcome.type !== "ok") return []
  const { entry, results: answered } = write.outcome.result
  const violations: Array<Violation> = []
  const report = (predicate: string) => violations.push(of("outcome", write, predicate))
  if (JSON.stringify(answered) !== JSON.stringify(results)) {
    report(`was answered ${text(answered)}, and the log at seq ${first} has ${text(results)}`)
  }
  const change = made[0]?.change
  if (entry === undefined || change === undefined) return violations
  const { key, namespace, updatedAt, updatedBy, value, version } = entry
  const expected = [change.namespace, change.key, change.value, change.version, change.actor, change.timestamp]
  if (JSON.stringify([namespace, key, value, version, updatedBy, updatedAt]) !== JSON.stringify(expected)) {
    report(`was answered ${text(entry)}, and the log has ${text(change)}`)
  }
  return [...violations, ...checkLifetime(write, entry.expiresAt, clockError)]
}

interface Applied {
  readonly write: Write
  readonly prefixDelete: PrefixDelete
  readonly commit: Commit
  readonly log: Log
  /** Whether an address had an entry immediately before. */
  readonly presenceOf: (address: string) => Presence
  /** Whether the log may lack the last of its records. */
  readonly isInPart: boolean
  readonly isAnswered: boolean
}

type Wrong = { readonly rule: Rule; readonly predicate: string }

const checkPrefixDelete = (applied: Applied): ReadonlyArray<Wrong> => {
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

export const repeated = (writes: ReadonlyArray<Write>, epoch: Epoch): ReadonlyArray<Violation> =>
  writes.flatMap((write): ReadonlyArray<Violation> => {
    if (write.tries.length === 1) return []
    const [first, ...others] = answers(write).filter(({ one }) => epoch.has(one))
    if (first === undefined) return []
    return others
      .filter(({ result }) => JSON.stringify(result) !== JSON.stringify(first.result))
      .map(({ one, result }) => ({
        ...of("retry", write, `was answered ${text(first.result)}, and ${text(result)} when it was repeated`),
        operations: [write.id, one.id]
      }))
  })
