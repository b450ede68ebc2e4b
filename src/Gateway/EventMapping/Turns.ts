/**
 * The turns of a session, so that each has one start and exactly one end, whatever the platform sends and however it
 * goes away. A pure machine: the session keeps its state and stores its events.
 */
import { Option } from "effect"
import type { EventBody, EventBodyOf, TurnEnd } from "../Protocol/Event.ts"

/**
 * How far a turn has come: its message was recorded and its start told (`told`), or the agent has begun it as well
 * (`started`). Earlier versions told the start when the agent began; until then their turns are `accepted`.
 */
export type Phase = "accepted" | "told" | "started"

/** The turns of a session. */
export interface Turns {
  /** Turns without an end, in the order in which they came. */
  readonly open: ReadonlyMap<string, Phase>
  /** The newest turns that have ended: they do not begin or end again. */
  readonly ended: ReadonlySet<string>
}

/** Turns after a step, and what to tell of it. */
export interface Step {
  readonly turns: Turns
  readonly events: ReadonlyArray<EventBody>
}

/** Turns that may be open at once, and ended turns that are remembered. */
export const most = 256

/** A session before its first turn. */
export const none: Turns = { open: new Map(), ended: new Set() }

/** The turn that the agent works at: the one begun last, or else the one that waits longest. */
export const current = ({ open }: Turns): string | undefined => {
  const started = [...open].filter(([, phase]) => phase === "started").at(-1)
  return started === undefined ? open.keys().next().value : started[0]
}

const withOpen = ({ open, ended }: Turns, turnId: string, phase: Phase): Turns => ({
  open: new Map([...open, [turnId, phase]]),
  ended
})

const withEnded = ({ open, ended }: Turns, turnId: string): Turns => ({
  open: new Map([...open].filter(([other]) => other !== turnId)),
  ended: new Set([...ended, turnId].slice(-most))
})

/** Takes up a turn for a message of a client; nothing where {@link most} turns are open or the id was used before. */
export const accept = (turns: Turns, start: EventBodyOf<"turn_started">): Option.Option<Step> =>
  turns.open.size >= most || turns.open.has(start.turnId) || turns.ended.has(start.turnId)
    ? Option.none()
    : Option.some({ turns: withOpen(turns, start.turnId, "told"), events: [start] })

/** The agent begins a turn. That is news to clients where it does so of its own accord. */
const start = (turns: Turns, body: EventBodyOf<"turn_started">): Step => {
  const phase = turns.open.get(body.turnId)
  if (phase === "started") return { turns, events: [] }
  if (phase === undefined && (turns.ended.has(body.turnId) || turns.open.size >= most)) return { turns, events: [] }
  return { turns: withOpen(turns, body.turnId, "started"), events: phase === "told" ? [] : [body] }
}

const end = (turns: Turns, body: TurnEnd): Step => {
  const { turnId } = body
  const phase = turns.open.get(turnId)
  if (phase === undefined) return { turns, events: [] }
  return {
    turns: withEnded(turns, turnId),
    events: phase === "accepted" ? [{ type: "turn_started", turnId }, body] : [body]
  }
}

/**
 * Takes in an event and tells what clients get of it.
 *
 * A start that is told again is left out, and so is an end of a turn that is not open. Whatever else comes after the
 * end of its turn is passed on: a late figure or result is still true, and it names its turn.
 */
export const step = (turns: Turns, body: EventBody): Step => {
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

/** Whether a turn waits for the agent to begin it. */
export const isWaiting = ({ open }: Turns, turnId: string): boolean => {
  const phase = open.get(turnId)
  return phase !== undefined && phase !== "started"
}

/** Ends those of some turns that the agent has not begun. */
export const endWaiting = (turns: Turns, turnIds: ReadonlyArray<string>, endOf: (turnId: string) => TurnEnd): Step =>
  endEach(
    turns,
    turnIds.filter(turnId => isWaiting(turns, turnId)),
    endOf
  )

/** Ends all open turns in the order in which they came, as when the instance is gone for good. */
export const endAll = (turns: Turns, endOf: (turnId: string) => TurnEnd): Step =>
  endEach(turns, [...turns.open.keys()], endOf)

const endEach = (turns: Turns, turnIds: ReadonlyArray<string>, endOf: (turnId: string) => TurnEnd): Step =>
  turnIds.reduce<Step>(
    (before, turnId) => {
      const after = end(before.turns, endOf(turnId))
      return { turns: after.turns, events: [...before.events, ...after.events] }
    },
    { turns, events: [] }
  )

/** The turns as stored events leave them, oldest event first: how far the agent has come is not in there. */
export const fromHistory = (bodies: Iterable<EventBody>): Turns => {
  let turns = none
  for (const body of bodies) turns = step(turns, body).turns
  return turns
}
