/** The operations of a history: each invocation with its outcome. */
import type * as H from "./History.ts"

interface Of<A extends H.Action, R extends H.Result> {
  readonly id: number
  readonly client: string
  readonly node: string
  readonly action: A
  /** Times of the invocation and of the answer; `Infinity` for the second where none came. */
  readonly start: number
  readonly end: number
  /** The same by the wall clock, in epoch milliseconds. */
  readonly wallStart: number
  readonly wallEnd: number
  readonly outcome:
    | { readonly type: "ok"; readonly result: R }
    | { readonly type: "fail"; readonly refused: H.Refusal | undefined }
    | { readonly type: "unknown" }
}

export type Write = Of<H.WriteAction, H.WriteResult>
export type Get = Of<H.GetAction, H.GetResult>
export type List = Of<H.ListAction, H.ListResult>
export type Poll = Of<H.PollAction, H.PollResult>
export type Op = Write | Get | List | Poll

export const isWrite = (op: Op): op is Write => op.action.type === "write"
export const isGet = (op: Op): op is Get => op.action.type === "get"
export const isList = (op: Op): op is List => op.action.type === "list"
export const isPoll = (op: Op): op is Poll => op.action.type === "poll"

/** Whether a write was told that it changed something. */
export const isEffective = ({ outcome }: Write): boolean =>
  outcome.type === "ok" && outcome.result.results.some(result => "version" in result || result.deleted)

/** Joins invocations and outcomes, in the order of invocation; throws where the history is not well-formed. */
export const operations = ({ events }: H.History): ReadonlyArray<Op> => {
  const invoked = new Map<number, H.Invoke>()
  const outcomes = new Map<number, H.Ok | H.Fail | H.Unknown>()
  const actors = new Set<string>()
  let last = Number.NEGATIVE_INFINITY
  for (const event of events) {
    if (event.time <= last) throw new Error(`The time does not rise at ${JSON.stringify(event).slice(0, 200)}`)
    last = event.time
    if (event.type === "invoke") {
      if (invoked.has(event.id)) throw new Error(`Operation ${event.id} is invoked twice`)
      if (event.action.type === "write") {
        if (actors.has(event.action.actor)) throw new Error(`Two writes have the actor ${event.action.actor}`)
        actors.add(event.action.actor)
      }
      invoked.set(event.id, event)
    } else if (event.type === "ok" || event.type === "fail" || event.type === "unknown") {
      if (!invoked.has(event.id)) throw new Error(`Operation ${event.id} ends without an invocation`)
      if (outcomes.has(event.id)) throw new Error(`Operation ${event.id} ends twice`)
      outcomes.set(event.id, event)
    }
  }
  return [...invoked.values()].map(({ action, client, id, node, time, wall }) => {
    const ended = outcomes.get(id)
    const isOpen = ended === undefined || ended.type === "unknown"
    const outcome =
      ended?.type === "ok"
        ? { type: "ok", result: ended.result }
        : ended?.type === "fail"
          ? { type: "fail", refused: ended.refused }
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
    } as Op
  })
}

const shown = (operation: H.Operation): string => {
  const condition = operation.ifVersion === undefined ? "" : ` if at ${operation.ifVersion}`
  return `${operation.op} ${operation.namespace} ${operation.key}${condition}`
}

const shownAction = (action: H.Action): string => {
  switch (action.type) {
    case "write": {
      const [first, ...others] = action.operations
      const what = first === undefined ? "nothing" : shown(first)
      return `${action.by}: ${what}${others.length > 0 ? ` and ${others.length} more` : ""}`
    }
    case "get":
      return `get ${action.namespace} ${action.key}`
    case "list":
      return `list ${action.namespace} ${JSON.stringify(action.prefix)}${action.limit === undefined ? "" : `, ${action.limit} after ${JSON.stringify(action.afterKey ?? "")}`}`
    case "poll":
      return `poll after ${action.after}`
  }
}

/** The operation as messages name it. */
export const name = ({ action, client, id, node }: Op): string =>
  `operation ${id} (${client} at ${node}, ${shownAction(action)})`
