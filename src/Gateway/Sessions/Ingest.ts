/**
 * What platform events make of a session, without effects.
 */
import { type Heard, Undelivered } from "../../Upstream/InstanceConnection.ts"
import type { PlatformEvent } from "../../Upstream/PlatformEvent.ts"
import * as Turns from "../EventMapping/Turns.ts"
import * as EventMapping from "../EventMapping.ts"
import type { EventBody } from "../Protocol/Event.ts"
import * as Session from "./SessionState.ts"

/** A step, and what was left out on the way. */
export interface Ingested {
  readonly step: Session.Step
  /** Types of which clients learn nothing, each as often as it came. */
  readonly dropped: ReadonlyArray<string>
  /** Known types whose payload did not fit. */
  readonly malformed: ReadonlyArray<string>
  /** Turns that have ended because nobody knew whether their messages had arrived. */
  readonly lost: ReadonlyArray<string>
  /** Turns that the agent begins although they have ended. */
  readonly belated: ReadonlyArray<string>
}

const textOf = (value: unknown): string | undefined => (typeof value === "string" && value !== "" ? value : undefined)

/** The end of an instance moves the session, which tells of that itself. */
const ends: ReadonlySet<string> = new Set(["instance.stopped", "instance.failed"])

const take = (standing: Session.Standing, body: EventBody, { payload, type }: PlatformEvent): Session.Step => {
  // What the instance says of itself is passed on. It does not move the session, which takes messages all the same.
  if (body.type === "session_state") return { standing, events: ends.has(type) ? [] : [body] }
  const { turns, events } = Turns.step(standing.turns, body)
  const step: Session.Step = { standing: turns === standing.turns ? standing : { ...standing, turns }, events }
  // A message that was refused begins no turn, and nothing else would ever end it. An error that names no turn may be
  // about anything: the turn that it is told along with has not been refused by that.
  if (body.type !== "error" || body.turnId === undefined || payload.turnId !== body.turnId) return step
  if (!Turns.isWaiting(turns, body.turnId)) return step
  const { turnId, code, message, retryable } = body
  const ended = Turns.step(turns, { type: "turn_errored", turnId, code, message, retryable })
  return { standing: { ...standing, turns: ended.turns }, events: [...events, ...ended.events] }
}

/** The end of an instance, if an event tells it. */
const endOf = ({ type, payload }: PlatformEvent, standing: Session.Standing): Session.Step => {
  if (type === "instance.stopped") {
    const message = textOf(payload.reason) ?? "the platform stopped the instance"
    return Session.andThen(
      Session.endTurns(standing, Session.errored("instance_stopped", "The instance was stopped during the turn")),
      standing => Session.move(standing, "ended", message)
    )
  }
  if (type === "instance.failed") {
    const message = textOf(payload.message) ?? textOf(payload.reason) ?? "the instance failed"
    return Session.andThen(
      Session.endTurns(
        standing,
        Session.errored(textOf(payload.code) ?? "instance_failed", `The instance failed during the turn: ${message}`)
      ),
      standing => Session.move(standing, "failed", message)
    )
  }
  return Session.stay(standing)
}

/** Takes in what comes of a session's instance, in order. What comes behind the end of the instance is left out. */
export const ingest = (before: Session.Standing, heard: ReadonlyArray<Heard>): Ingested => {
  const dropped: Array<string> = []
  const malformed: Array<string> = []
  const lost: Array<string> = []
  const belated: Array<string> = []
  const events: Array<EventBody> = []
  let standing = before
  const go = (step: Session.Step): void => {
    standing = step.standing
    events.push(...step.events)
  }
  for (const platformEvent of heard) {
    if (!Session.isRunning(standing.state)) break
    if (platformEvent instanceof Undelivered) {
      const { turns } = standing
      lost.push(...platformEvent.turnIds.filter(turnId => Turns.isWaiting(turns, turnId)))
      go(Session.loseMessages(standing, platformEvent.turnIds))
      continue
    }
    const mapped = EventMapping.map(platformEvent, { turnId: Turns.current(standing.turns) })
    if (mapped.dropped !== undefined) dropped.push(mapped.dropped)
    if (mapped.malformed !== undefined) malformed.push(mapped.malformed)
    for (const body of mapped.events) {
      if (body.type === "turn_started" && standing.turns.ended.has(body.turnId)) belated.push(body.turnId)
      go(take(standing, body, platformEvent))
    }
    go(endOf(platformEvent, standing))
  }
  return { step: { standing, events }, dropped, malformed, lost, belated }
}

/** The ids of the newest events, to recognise those that are sent again. */
export class Seen {
  private readonly ids = new Set<string>()

  constructor(private readonly most: number) {}

  /** Whether an event is new; one without an id always is, and so is what is no event. */
  isNews(heard: Heard): boolean {
    if (heard instanceof Undelivered || heard.id === undefined) return true
    const { id } = heard
    if (this.ids.has(id)) return false
    this.ids.add(id)
    if (this.ids.size > this.most) this.ids.delete(this.ids.values().next().value!)
    return true
  }
}
