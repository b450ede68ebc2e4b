/** Rules of the log alone: versions, preconditions, whole writes, results, and expiry. */
import { addressOf, type Change, type Operation, type OperationResult } from "../History.ts"
import type { Commit, Log, Presence, State } from "../Log.ts"
import { expiresOf, presence } from "../Log.ts"
import { isEffective, name, type Write } from "../Operations.ts"
import { of, type Rule, text, type Violation } from "../Violation.ts"
import * as PrefixDeletes from "./PrefixDeletes.ts"

/** The actor of the deletes that expiry makes. */
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

class WriteCheck {
  readonly violations: Array<Violation> = []
  private readonly states = new Map<string, State>()
  private readonly seen = new Map<string, Commit>()

  constructor(private readonly context: Context) {}

  private report(rule: Rule, message: string, ...writes: ReadonlyArray<Write | undefined>): void {
    this.violations.push({
      rule,
      message,
      operations: writes.flatMap(write => (write === undefined ? [] : [write.id]))
    })
  }

  private time(change: Change, previous: Change | undefined): void {
    if (previous === undefined || previous.timestamp <= change.timestamp) return
    this.report(
      "log",
      `time falls from ${previous.timestamp} to ${change.timestamp} at seq ${change.seq}`,
      this.context.writes.get(previous.actor),
      this.context.writes.get(change.actor)
    )
  }

  /** Applies a record to the state. Its version must be the next one. */
  private advance(change: Change, commit: Commit, operation: Operation | undefined): void {
    const address = addressOf(change)
    const before = this.states.get(address)
    const expected = (before?.change.version ?? 0) + 1
    if (change.version !== expected) {
      this.report(
        "chain",
        `${at(change)} of ${this.who(commit)} has version ${change.version}, and follows version ${expected - 1}${before === undefined ? "" : ` of ${this.who(before.commit)}, seq ${before.change.seq}`}`,
        commit.write,
        before?.commit.write
      )
    }
    if (change.op === "delete" && before?.change.op !== "set") {
      this.report("chain", `${at(change)} of ${this.who(commit)} deletes what is absent`, commit.write)
    }
    const set = operation?.op === "set" ? operation : undefined
    const expires = expiresOf(commit.write, set, change.timestamp, this.context.clockError)
    this.states.set(address, { position: commit.index + 1, change, commit, expires })
  }

  private who({ actor, write }: Commit): string {
    return write === undefined ? actor : name(write)
  }

  private expiry(commit: Commit): void {
    const [{ change }] = commit.made as [Commit["made"][number]]
    const before = this.states.get(addressOf(change))
    const isDue = before?.expires !== undefined && before.expires.min - this.context.clockError <= change.timestamp
    if (!isDue || change.op !== "delete") {
      const expires = before?.expires === undefined ? "never" : `at ${before.expires.min} at the earliest`
      this.report(
        "expiry",
        `${at(change)} is an expiry at ${change.timestamp} of what expires ${expires}, set by ${before === undefined ? "no write" : this.who(before.commit)}`,
        before?.commit.write
      )
    }
    this.advance(change, commit, undefined)
  }

  /** Whether an operation of this commit found its entry. */
  private presenceFor(address: string, write: Write, commit: Commit): Presence {
    const state = this.states.get(address)
    return presence(state, write.wallStart - this.context.clockError, commit.made[0]!.change.timestamp)
  }

  private precondition(operation: Operation, write: Write, commit: Commit, found: Presence): void {
    const { ifVersion } = operation
    if (ifVersion === undefined) return
    const state = this.states.get(addressOf(operation))
    const current = state?.change.op === "set" ? state.change.version : 0
    if (ifVersion === current && (ifVersion === 0 || found !== "absent")) return
    // Before a set, the expiry of an entry is recorded, unless the same write has set the entry.
    const isUnrecorded = operation.op === "delete" || state?.commit === commit
    if (ifVersion === 0 && isUnrecorded && found !== "present") return
    this.report(
      "chain",
      `${name(write)} was applied at seq ${commit.first} where ${operation.key} was at version ${current}, not ${ifVersion}${state === undefined ? "" : `, since ${this.who(state.commit)}, seq ${state.change.seq}`}`,
      write,
      state?.commit.write
    )
  }

  private result(operation: Operation, change: Change | undefined): OperationResult {
    return operation.op === "set" ? { version: change?.version ?? 0 } : { deleted: change !== undefined }
  }

  private write(write: Write, commit: Commit): void {
    const earlier = this.seen.get(commit.actor)
    if (earlier !== undefined) {
      this.report(
        write.tries.length > 1 ? "retry" : "batch",
        `${name(write)} is in the log at seq ${earlier.first} and again at seq ${commit.first}`,
        write
      )
    }
    this.seen.set(commit.actor, commit)
    if (write.outcome.type === "fail") {
      this.report("outcome", `${name(write)} was refused, and the log has it at seq ${commit.first}`, write)
    }
    const isInPart = !this.context.log.isWhole && commit.last === this.context.log.end
    const isAnswered = this.context.own.has(write) && this.context.isAnswered(write) && !isInPart
    if (write.action.prefixDelete !== undefined) {
      const { log } = this.context
      const presenceOf = (address: string) => this.presenceFor(address, write, commit)
      const found = PrefixDeletes.check({
        write,
        prefixDelete: write.action.prefixDelete,
        commit,
        log,
        presenceOf,
        isInPart,
        isAnswered
      })
      for (const { predicate, rule } of found) this.report(rule, `${name(write)} ${predicate}`, write)
      for (const { change } of commit.made) this.advance(change, commit, undefined)
      return
    }
    const made = new Map(commit.made.map(({ change, operation }) => [operation, change]))
    const results: Array<OperationResult> = []
    for (const operation of write.action.operations) {
      const change = made.get(operation)
      const found = this.presenceFor(addressOf(operation), write, commit)
      this.precondition(operation, write, commit, found)
      results.push(this.result(operation, change))
      if (change === undefined) {
        if (isInPart) continue
        if (operation.op === "set" || found === "present") {
          this.report(
            "batch",
            `${name(write)} is at seq ${commit.first} without its ${operation.op} of ${operation.key}`,
            write
          )
        }
        continue
      }
      if (found === "absent" && this.states.get(addressOf(operation))?.change.op === "set") {
        this.report(
          "expiry",
          `${at(change)} of ${name(write)} replaces what had expired, without a record of that`,
          write
        )
      }
      if (operation.op === "set" && JSON.stringify(operation.value) !== JSON.stringify(change.value)) {
        this.report(
          "log",
          `${at(change)} has the value ${text(change.value)}, and ${name(write)} wrote ${text(operation.value)}`,
          write
        )
      }
      this.advance(change, commit, operation)
    }
    for (const { change, operation } of commit.made) {
      if (operation === undefined)
        this.report("batch", `${at(change)} is no operation of ${name(write)}, or not in order`, write)
      if (change.timestamp !== commit.made[0]!.change.timestamp) {
        this.report("batch", `${name(write)} has two times, at seq ${commit.first} and at seq ${change.seq}`, write)
      }
    }
    if (isAnswered) this.answer(write, commit, results)
  }

  /** The answer agrees with the log. */
  private answer(write: Write, { first, made }: Commit, results: ReadonlyArray<OperationResult>): void {
    if (write.outcome.type !== "ok") return
    const { entry, results: answered } = write.outcome.result
    if (JSON.stringify(answered) !== JSON.stringify(results)) {
      this.report(
        "outcome",
        `${name(write)} was answered ${text(answered)}, and the log at seq ${first} has ${text(results)}`,
        write
      )
    }
    const change = made[0]?.change
    if (entry === undefined || change === undefined) return
    const { key, namespace, updatedAt, updatedBy, value, version } = entry
    const expected = [change.namespace, change.key, change.value, change.version, change.actor, change.timestamp]
    if (JSON.stringify([namespace, key, value, version, updatedBy, updatedAt]) !== JSON.stringify(expected)) {
      this.report("outcome", `${name(write)} was answered ${text(entry)}, and the log has ${text(change)}`, write)
    }
    this.lifetime(write, entry.expiresAt)
  }

  private lifetime(write: Write, expiresAt: number | null): void {
    const [operation] = write.action.operations
    const ttl = operation?.op === "set" ? operation.ttlMs : undefined
    const { clockError } = this.context
    const fits =
      ttl === undefined
        ? expiresAt === null
        : expiresAt !== null &&
          expiresAt >= write.wallStart + ttl - clockError &&
          expiresAt <= write.wallEnd + ttl + clockError
    if (!fits) {
      this.report(
        "expiry",
        `${name(write)} with a lifetime of ${ttl ?? "any"} ms, sent at ${write.wallStart}, expires at ${expiresAt}`,
        write
      )
    }
  }

  commits(): void {
    let previous: Change | undefined
    for (const commit of this.context.log.commits) {
      for (const { change } of commit.made) {
        this.time(change, previous)
        previous = change
      }
      if (commit.write !== undefined) this.write(commit.write, commit)
      else if (commit.actor === expiryActor) this.expiry(commit)
      else {
        this.report("log", `${at(commit.made[0]!.change)} is of ${commit.actor}, which wrote nothing`)
        for (const { change } of commit.made) this.advance(change, commit, undefined)
      }
    }
  }
}

export const check = (context: Context): ReadonlyArray<Violation> => {
  const writeCheck = new WriteCheck(context)
  writeCheck.commits()
  return writeCheck.violations
}

/** Acknowledged writes that changed something are in the log. */
export const acknowledged = ({ log, own }: Context): ReadonlyArray<Violation> => {
  const logged = new Set(log.commits.map(({ write }) => write))
  return [...own]
    .filter(write => isEffective(write) && !logged.has(write))
    .map(write => of("outcome", write, "was acknowledged, and is not in the log"))
}
