/**
 * The turns of a session, without effects: each has one start and exactly one end, whatever the platform sends.
 */
import { Option } from "effect"
import type { EventBody, EventBodyOf, TurnEnd } from "../Protocol/Event.ts"

/**
 * `announced`: the message is stored and clients were told of the start. `started`: the agent has started as well.
 * `accepted`: stored by an earlier version, which told clients when the agent started.
 */
export type TurnStatus = "accepted" | "announced" | "started"

/** The turns of a session. */
export interface Turns {
  /** Turns that have not ended, oldest first. */
  readonly open: ReadonlyMap<string, TurnStatus>
  /** The newest turns that have ended: they cannot start or end again. */
  readonly ended: ReadonlySet<string>
}

/** Turns after an event, and the events to publish. */
export interface Update {
  readonly turns: Turns
  readonly events: ReadonlyArray<EventBody>
}

/** Turns that may be open at once, and ended turns that are remembered. */
export const most = 256

export const none: Turns = { open: new Map(), ended: new Set() }

/** The turn in progress: the one that started last, or else the oldest pending one. */
export const current = ({ open }: Turns): string | undefined => {
  const started = [...open].filter(([, status]) => status === "started").at(-1)
  return started === undefined ? open.keys().next().value : started[0]
}

const withOpen = ({ open, ended }: Turns, turnId: string, status: TurnStatus): Turns => ({
  open: new Map([...open, [turnId, status]]),
  ended
})

const withEnded = ({ open, ended }: Turns, turnId: string): Turns => ({
  open: new Map([...open].filter(([other]) => other !== turnId)),
  ended: new Set([...ended, turnId].slice(-most))
})

/** Opens a turn for a client's message; none where {@link most} turns are open or the id was used before. */
export const accept = (turns: Turns, start: EventBodyOf<"turn_started">): Option.Option<Update> =>
  turns.open.size >= most || turns.open.has(start.turnId) || turns.ended.has(start.turnId)
    ? Option.none()
    : Option.some({ turns: withOpen(turns, start.turnId, "announced"), events: [start] })

/** The agent starts a turn. Clients are told unless they were told of its message. */
const start = (turns: Turns, body: EventBodyOf<"turn_started">): Update => {
  const status = turns.open.get(body.turnId)
  if (status === "started") return { turns, events: [] }
  if (status === undefined && (turns.ended.has(body.turnId) || turns.open.size >= most)) return { turns, events: [] }
  return { turns: withOpen(turns, body.turnId, "started"), events: status === "announced" ? [] : [body] }
}

const end = (turns: Turns, body: TurnEnd): Update => {
  const { turnId } = body
  const status = turns.open.get(turnId)
  if (status === undefined) return { turns, events: [] }
  return {
    turns: withEnded(turns, turnId),
    events: status === "accepted" ? [{ type: "turn_started", turnId }, body] : [body]
  }
}

/**
 * Applies an event of the agent.
 *
 * A second start is dropped, and so is an end of a turn that is not open. Other events are passed on even after the end
 * of their turn: a late result is still true.
 */
export const apply = (turns: Turns, body: EventBody): Update => {
  switch (body.type) {
    case "turn_started":
      return start(turns, body)
    case "turn_completed":
    case "turn_errored":
    case "turn_interrupted":
      return end(turns, body)
    default:
      return { turns, events: [body] }
  }
}

/** Whether a turn is open and the agent has not started it. */
export const isPending = ({ open }: Turns, turnId: string): boolean => {
  const status = open.get(turnId)
  return status !== undefined && status !== "started"
}

/** Ends those of some turns that are pending. */
export const endPending = (turns: Turns, turnIds: ReadonlyArray<string>, endOf: (turnId: string) => TurnEnd): Update =>
  endEach(
    turns,
    turnIds.filter(turnId => isPending(turns, turnId)),
    endOf
  )

/** Ends all open turns, oldest first. */
export const endAll = (turns: Turns, endOf: (turnId: string) => TurnEnd): Update =>
  endEach(turns, [...turns.open.keys()], endOf)

const endEach = (turns: Turns, turnIds: ReadonlyArray<string>, endOf: (turnId: string) => TurnEnd): Update =>
  turnIds.reduce<Update>(
    (before, turnId) => {
      const after = end(before.turns, endOf(turnId))
      return { turns: after.turns, events: [...before.events, ...after.events] }
    },
    { turns, events: [] }
  )
