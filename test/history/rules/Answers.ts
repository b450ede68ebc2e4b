/** The answer to a write agrees with the log: its results, the entry that it set, and when that expires. */
import type { OperationResult } from "../History.ts"
import type { Commit } from "../Log.ts"
import type { Write } from "../Operations.ts"
import { of, text, type Violation } from "../Violation.ts"

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
export const check = (
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
