/**
 * The update that platform events make of a session. Pure.
 */
import { type Received, Undelivered } from "../../Upstream/InstanceConnection.ts"
import type { PlatformEvent } from "../../Upstream/PlatformEvent.ts"
import type { EventBody } from "../Protocol/Event.ts"
import * as SplitCharacters from "../SplitCharacters.ts"
import * as State from "./SessionState.ts"

/** An update made of platform events, and what else the caller has to handle. */
export interface Ingested {
  readonly update: State.Update
  /** Types of events that are dropped, one entry for each event. */
  readonly dropped: ReadonlyArray<string>
  /** Known types whose payload does not match their schema. */
  readonly malformed: ReadonlyArray<string>
  /** Turns that have ended because the delivery of their message is unknown. */
  readonly undelivered: ReadonlyArray<string>
  /** Turns that the agent starts after they have ended. */
  readonly lateStarts: ReadonlyArray<string>
  /** First halves of characters whose second halves have not arrived. */
  readonly halves: SplitCharacters.Halves
}

const textOf = (value: unknown): string | undefined => (typeof value === "string" && value !== "" ? value : undefined)

/** Events that end the instance. The session then publishes its own change of state. */
const ends: ReadonlySet<string> = new Set(["instance.stopped", "instance.failed"])

const applyBody = (state: State.SessionState, body: EventBody, { payload, type }: PlatformEvent): State.Update => {
  if (body.type === "session_state") return ends.has(type) ? State.withoutEvents(state) : State.applyReport(state, body)
  const update = State.applyEvent(state, body)
  // An error that names a pending turn refuses its message, and nothing else would end the turn.
  if (body.type !== "error" || body.turnId === undefined || payload.turnId !== body.turnId) return update
  const { turnId, code, message, retryable } = body
  return State.andThen(update, state => State.endPendingTurns(state, [turnId], State.errored(code, message, retryable)))
}

/** Applies the end of an instance to its session. */
const endInstance = ({ type, payload }: PlatformEvent, state: State.SessionState): State.Update => {
  if (type === "instance.stopped") {
    const message = textOf(payload.reason) ?? "the platform stopped the instance"
    return State.andThen(
      State.endTurns(state, State.errored("instance_stopped", "The instance was stopped during the turn")),
      state => State.transition(state, "ended", message)
    )
  }
  if (type === "instance.failed") {
    const message = textOf(payload.message) ?? textOf(payload.reason) ?? "the instance failed"
    const code = textOf(payload.code) ?? "instance_failed"
    return State.andThen(
      State.endTurns(state, State.errored(code, `The instance failed during the turn: ${message}`)),
      state => State.transition(state, "failed", message)
    )
  }
  return State.withoutEvents(state)
}

const deliveryUnknown = State.errored(
  "delivery_unknown",
  "The connection was lost, and it is not known whether the message has reached the agent"
)

/** Makes one update of the events of an instance, in order. Events after the end of the instance are dropped. */
export const ingest = (
  before: State.SessionState,
  received: ReadonlyArray<Received>,
  halvesBefore: SplitCharacters.Halves = SplitCharacters.none
): Ingested => {
  const dropped: Array<string> = []
  const malformed: Array<string> = []
  const undelivered: Array<string> = []
  const lateStarts: Array<string> = []
  const events: Array<EventBody> = []
  let state = before
  let halves = halvesBefore
  const add = (update: State.Update): void => {
    state = update.state
    events.push(...update.events)
  }
  for (const platformEvent of received) {
    if (!State.isRunning(state)) break
    if (platformEvent instanceof Undelivered) {
      undelivered.push(...platformEvent.turnIds.filter(turnId => State.isPending(state, turnId)))
      add(State.endPendingTurns(state, platformEvent.turnIds, deliveryUnknown))
      continue
    }
    const joined = SplitCharacters.map(halves, platformEvent, { turnId: State.currentTurn(state) })
    const { mapped } = joined
    halves = joined.halves
    if (mapped.dropped !== undefined) dropped.push(mapped.dropped)
    if (mapped.malformed !== undefined) malformed.push(mapped.malformed)
    for (const body of mapped.events) {
      if (body.type === "turn_started" && state.turns.ended.has(body.turnId)) lateStarts.push(body.turnId)
      add(applyBody(state, body, platformEvent))
    }
    add(endInstance(platformEvent, state))
  }
  return { update: { state, events }, dropped, malformed, undelivered, lateStarts, halves }
}
