/** What a session is doing, as lists show it: a fold of its updates. Pure. */
import type { EventBody } from "../../Protocol/Event.ts"
import type { Activity } from "../../SessionEvents.ts"
import { isRunning, type SessionState, type Turns, type Update } from "./SessionState.ts"

/** The activity of a session in memory. */
export interface State {
  readonly shown: Activity
  /** The requests that wait for a person, the oldest first, each with its turn if it has one. */
  readonly pending: ReadonlyMap<string, string | undefined>
}

/** Maximum number of pending requests that are kept. Above it the oldest no longer count. */
const maxPending = 1024

const none: State["pending"] = new Map()

/** The activity that a stored history ends with. Of its requests and turns, none outlives the process. */
export const initial = (stored: Activity): State => ({ shown: stored, pending: none })

const boundaries: ReadonlySet<EventBody["type"]> = new Set([
  ...(["session_state", "turn_started", "turn_completed", "turn_errored", "turn_interrupted"] as const),
  ...(["question_requested", "question_resolved", "approval_requested", "approval_resolved"] as const)
])

/** Applies an event to the pending requests. */
const track = (pending: Map<string, string | undefined>, body: EventBody, { ended }: Turns): void => {
  switch (body.type) {
    case "question_requested":
    case "approval_requested":
      // It may come after the end of its turn.
      if (body.turnId === undefined || !ended.has(body.turnId)) pending.set(body.requestId, body.turnId)
      if (pending.size > maxPending) pending.delete(pending.keys().next().value!)
      return
    case "question_resolved":
    case "approval_resolved":
      pending.delete(body.requestId)
      return
    case "turn_completed":
    case "turn_errored":
    case "turn_interrupted":
      for (const [requestId, turnId] of pending) if (turnId === body.turnId) pending.delete(requestId)
  }
}

/** Whether the session has failed after an event, if that changes it. */
const failureAfter = (body: EventBody, { lifecycle }: SessionState): boolean | undefined => {
  switch (body.type) {
    case "turn_errored":
      return true
    case "turn_started":
    case "turn_completed":
    case "turn_interrupted":
      return false
    case "session_state":
      // A state that the instance reports is not that of the session. A new instance is a new attempt.
      if (body.state !== lifecycle) return undefined
      return lifecycle === "error" ? true : lifecycle === "activating" ? false : undefined
    default:
      return undefined
  }
}

/**
 * The activity after an update. It is the same object if it is not to be stored: only the start and the end of a turn,
 * requests to a person, and states of the session change it, or the time at which the session was last active.
 */
export const after = (activity: State, { events, state }: Update): State => {
  const { pending: before, shown } = activity
  const running = state.turns.open.size > 0
  const isActive = events.some(({ type }) => boundaries.has(type))
  if (!isActive && running === shown.running && before.size > 0 === shown.waiting) return activity
  const pending = new Map(before)
  let { failed } = shown
  for (const body of events) {
    track(pending, body, state.turns)
    failed = failureAfter(body, state) ?? failed
  }
  if (!isRunning(state)) pending.clear()
  return { shown: { running, waiting: pending.size > 0, failed }, pending }
}
