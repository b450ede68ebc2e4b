/** What a history shows that the service must not do. */
import { name, type Op } from "./Operations.ts"

/**
 * - `log`: `seq` is dense, time does not decrease, and all readers of a `seq` see the same record, which is of a known write
 * - `chain`: the versions of a key follow each other, and each precondition that held saw the version that it names
 * - `outcome`: acknowledged writes are in the log with the results of their answers, refused ones are not
 * - `batch`: a write is in the log complete, once and consecutively, and no client sees a part of it
 * - `retry`: a write that is repeated with its `Idempotency-Key` is applied once, and all its answers are the same
 * - `order`: a write comes after all that was known when it was invoked
 * - `read`: a read shows a state between what was known when it was invoked and what was invoked when it ended
 * - `list`: a list is the fold of the log up to its `Kv-Last-Seq`
 * - `follower`: a follower sees each record once, in order, and in the end all
 * - `expiry`: an entry goes when its time has come, not before
 * - `epoch`: a position belongs to the log that it was read from
 */
export type Rule =
  | "log"
  | "chain"
  | "outcome"
  | "batch"
  | "retry"
  | "order"
  | "read"
  | "list"
  | "follower"
  | "expiry"
  | "epoch"

export interface Violation {
  readonly rule: Rule
  /** A sentence that names the operations or followers concerned. */
  readonly message: string
  /** Ids of the operations concerned. */
  readonly operations: ReadonlyArray<number>
}

/** A violation that operations are concerned in; the first is the subject of the sentence. */
export const of = (rule: Rule, op: Op, predicate: string, ...others: ReadonlyArray<Op | undefined>): Violation => ({
  rule,
  message: `${name(op)} ${predicate}`,
  operations: [op, ...others].flatMap(one => (one === undefined ? [] : [one.id]))
})

/** A value for a message, shortened if it is large. */
export const text = (value: unknown): string => {
  const json = JSON.stringify(value) ?? "nothing"
  return json.length > 200 ? `${json.slice(0, 200)}… (${json.length})` : json
}
