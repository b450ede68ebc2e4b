/** The operations of a history, each invocation with its outcome, and what they show that the service must not do. */
import type * as H from "./History.ts"

interface Of<A extends H.Action, R extends H.Result> {
  readonly id: number
  readonly client: string
  readonly node: string
  readonly action: A
  /** Times of the invocation and of the answer; `Infinity` for the second if none came. */
  readonly start: number
  readonly end: number
  /** The same by the wall clock, in epoch milliseconds. */
  readonly wallStart: number
  readonly wallEnd: number
  readonly outcome:
    | { readonly type: "ok"; readonly result: R }
    | { readonly type: "fail"; readonly refused: H.Refusal | undefined; readonly isGone: boolean }
    | { readonly type: "unknown" }
}

export type Try = Of<H.WriteAction, H.WriteResult>

/** A write, however often it was tried: from its first invocation to its first answer that it was applied. */
export interface Write extends Try {
  /** More than one with an `Idempotency-Key`. */
  readonly tries: ReadonlyArray<Try>
}

/** A try that was refused, of a write that may have been applied by another one; it has not changed anything. */
export interface RefusedTry extends Try {
  readonly write: Write
}

export type Get = Of<H.GetAction, H.GetResult>
export type Read = Of<H.ReadAction, H.ReadResult>
export type List = Of<H.ListAction, H.ListResult>
export type Poll = Of<H.PollAction, H.PollResult>
export type Op = Write | RefusedTry | Get | Read | List | Poll

export const isWrite = (op: Op): op is Write => op.action.type === "write" && "tries" in op
export const isRefusedTry = (op: Op): op is RefusedTry => op.action.type === "write" && "write" in op
export const isRead = (op: Op): op is Read => op.action.type === "read"
export const isGet = (op: Op): op is Get => op.action.type === "get"
export const isList = (op: Op): op is List => op.action.type === "list"
export const isPoll = (op: Op): op is Poll => op.action.type === "poll"

/** Whether the answer says that the write changed something. */
export const isEffective = ({ outcome }: Write): boolean =>
  outcome.type === "ok" &&
  ((outcome.result.removed?.count ?? 0) > 0 ||
    outcome.result.results.some(result => "version" in result || result.deleted))

/** The tries of a write that were answered that it was applied. */
export const answers = ({ tries }: Write) =>
  tries.flatMap(one => (one.outcome.type === "ok" ? [{ one, result: one.outcome.result }] : []))

/** Joins the tries of a write, and returns the refused ones separately if another try was not refused. */
const write = (tries: readonly [Try, ...ReadonlyArray<Try>]): readonly [Write, ...ReadonlyArray<RefusedTry>] => {
  const [first, ...others] = tries
  if (others.length === 0) return [{ ...first, tries }]
  const applied = tries
    .filter(({ outcome }) => outcome.type === "ok")
    .sort((a, b) => a.end - b.end)
    .at(0)
  const open = tries.find(({ outcome }) => outcome.type === "unknown")
  const last = applied ?? open ?? tries.at(-1)!
  const outcome: Try["outcome"] =
    last.outcome.type === "fail" ? { type: "fail", refused: undefined, isGone: false } : last.outcome
  const whole: Write = { ...first, end: last.end, wallEnd: last.wallEnd, outcome, tries }
  const refused = tries.filter(({ outcome }) => outcome.type === "fail" && outcome.refused !== undefined)
  return [whole, ...refused.map(one => ({ ...one, write: whole }))]
}

/**
 * Joins invocations and outcomes, in the order of invocation, and the tries of a write; throws if the history is not
 * well-formed.
 */
export const operations = ({ events }: H.History): ReadonlyArray<Op> => {
  const invoked = new Map<number, H.Invoke>()
  const outcomes = new Map<number, H.Ok | H.Fail | H.Unknown>()
  const actions = new Map<string, H.WriteAction>()
  let last = Number.NEGATIVE_INFINITY
  for (const event of events) {
    if (event.time <= last) throw new Error(`The time does not rise at ${JSON.stringify(event).slice(0, 200)}`)
    last = event.time
    if (event.type === "invoke") {
      if (invoked.has(event.id)) throw new Error(`Operation ${event.id} is invoked twice`)
      if (event.action.type === "write") {
        const { actor, idempotencyKey } = event.action
        const known = actions.get(actor)
        if (
          known !== undefined &&
          (idempotencyKey === undefined || JSON.stringify(known) !== JSON.stringify(event.action))
        ) {
          throw new Error(`Two writes have the actor ${actor}`)
        }
        actions.set(actor, event.action)
      }
      invoked.set(event.id, event)
    } else if (event.type === "ok" || event.type === "fail" || event.type === "unknown") {
      if (!invoked.has(event.id)) throw new Error(`Operation ${event.id} ends without an invocation`)
      if (outcomes.has(event.id)) throw new Error(`Operation ${event.id} ends twice`)
      outcomes.set(event.id, event)
    }
  }
  const all = [...invoked.values()].map(({ action, client, id, node, time, wall }) => {
    const ended = outcomes.get(id)
    const isOpen = ended === undefined || ended.type === "unknown"
    const outcome =
      ended?.type === "ok"
        ? { type: "ok", result: ended.result }
        : ended?.type === "fail"
          ? { type: "fail", refused: ended.refused, isGone: ended.gone === true }
          : { type: "unknown" }
    // Only the recorder joins actions and results.
    return {
      id,
      client,
      node,
      action,
      start: time,
      wallStart: wall,
      end: isOpen ? Number.POSITIVE_INFINITY : ended.time,
      wallEnd: isOpen ? Number.POSITIVE_INFINITY : ended.wall,
      outcome
    } as Try | Exclude<Op, Write | RefusedTry>
  })
  const isTry = (op: (typeof all)[number]): op is Try => op.action.type === "write"
  const tries = Map.groupBy(all.filter(isTry), ({ action }) => action.actor)
  const writes = [...tries.values()].flatMap(([first, ...others]) => write([first!, ...others]))
  const rest = all.flatMap((op): ReadonlyArray<Op> => (isTry(op) ? [] : [op as Exclude<Op, Write | RefusedTry>]))
  return [...rest, ...writes].sort((a, b) => a.start - b.start)
}

const shown = (operation: H.Operation): string => {
  const condition = operation.ifVersion === undefined ? "" : ` if at ${operation.ifVersion}`
  return `${operation.op} ${operation.namespace} ${operation.key}${condition}`
}

const shownAction = (action: H.Action): string => {
  switch (action.type) {
    case "write": {
      if (action.prefixDelete !== undefined) {
        const { limit, namespace, prefix } = action.prefixDelete
        return `delete ${limit} of ${namespace} ${JSON.stringify(prefix)}`
      }
      const [first, ...others] = action.operations
      const what = first === undefined ? "nothing" : shown(first)
      return `${action.by}: ${what}${others.length > 0 ? ` and ${others.length} more` : ""}`
    }
    case "get":
      return `get ${action.namespace} ${action.key}`
    case "read":
      return `read ${action.addresses.map(({ key, namespace }) => `${namespace} ${key}`).join(", ")}`
    case "list":
      return `list ${action.namespace} ${JSON.stringify(action.prefix)}${action.limit === undefined ? "" : `, ${action.limit} after ${JSON.stringify(action.afterKey ?? "")}`}`
    case "poll":
      return `poll after ${action.after}`
  }
}

/** The operation as messages name it. */
export const name = ({ action, client, id, node }: Op): string =>
  `operation ${id} (${client} at ${node}, ${shownAction(action)})`

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
