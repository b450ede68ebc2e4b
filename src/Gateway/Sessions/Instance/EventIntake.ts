/**
 * Applies the received events of an instance to its session: the update that they make, which is pure, and what follows
 * once it is stored.
 */
import { Effect, type Scope } from "effect"
import type { MetricTags } from "../../../base/MetricTags.ts"
import {
  type AgentPlatformConnectionError,
  type Received,
  type Send,
  Undelivered
} from "../../../Upstream/AgentPlatform.ts"
import type { PlatformEvent } from "../../../Upstream/PlatformEvent.ts"
import * as EventMapping from "../../EventMapping.ts"
import * as GatewayMetrics from "../../GatewayMetrics.ts"
import type { EventBody } from "../../Protocol/Event.ts"
import type { Paced } from "../Session/LargeEvents.ts"
import * as State from "../Session/SessionState.ts"

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
  readonly halves: EventMapping.Halves
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
  halvesBefore: EventMapping.Halves = EventMapping.noHalves
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
    const joined = EventMapping.mapJoined(halves, platformEvent, { turnId: State.currentTurn(state) })
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

/** The ids of the newest events, which identify events that are sent again. */
export class RecentIds {
  private readonly ids = new Set<string>()

  constructor(private readonly max: number) {}

  /** Whether an event is new. An event without an id always is. */
  isNew(received: Received): boolean {
    if (received instanceof Undelivered || received.id === undefined) return true
    const { id } = received
    if (this.ids.has(id)) return false
    this.ids.add(id)
    if (this.ids.size > this.max) this.ids.delete(this.ids.values().next().value!)
    return true
  }
}

/** Updates the session of an instance. Does nothing if the session has another instance, or none. */
export type UpdateSession = (f: (state: State.SessionState) => State.Update) => Effect.Effect<void>

const sizeOf = (received: ReadonlyArray<Received>): number =>
  received.reduce((sum, one) => sum + (one instanceof Undelivered ? 0 : (one.size ?? 0)), 0)

/** The session and the connection of an instance. */
export interface Options {
  readonly updateSession: UpdateSession
  /** Runs an update by large events in their turn. */
  readonly paced: Paced
  readonly send: Send<AgentPlatformConnectionError>
  /** The scope of interrupts that are sent in the background. */
  readonly scope: Scope.Scope
  /** The types of malformed events that were logged, for all sessions of a gateway. */
  readonly reported: Set<string>
  /** The tags of metrics. */
  readonly tags: MetricTags
}

/** Event ids that are kept. A platform may replay more events than requested. */
const maxRecentIds = 4096

/** Events are to be taken one batch after the other, in order. */
export class EventIntake {
  private readonly recent = new RecentIds(maxRecentIds)
  /** Turns that have ended because their message may have been lost. */
  private readonly lost = new Set<string>()
  private halves = EventMapping.noHalves

  constructor(private readonly options: Options) {}

  /** Applies the events that are new, in one update. Waits until the update is stored. */
  take(received: ReadonlyArray<Received>): Effect.Effect<void> {
    return Effect.suspend(() => {
      const fresh = received.filter(one => this.recent.isNew(one))
      if (fresh.length === 0) return Effect.void
      let result: Ingested | undefined
      const updated = this.options.updateSession(state => {
        result = ingest(state, fresh, this.halves)
        return result.update
      })
      return Effect.zipRight(
        this.options.paced(sizeOf(fresh), updated),
        Effect.suspend(() => (result === undefined ? Effect.void : this.onApplied(result)))
      )
    })
  }

  private onApplied(result: Ingested): Effect.Effect<void> {
    this.halves = result.halves
    const isUsual = result.undelivered.length === 0 && result.lateStarts.length === 0
    return isUsual ? this.report(result) : Effect.zipRight(this.interruptLateStarts(result), this.report(result))
  }

  /** Interrupts turns that the agent starts after their end was published: clients may have sent them again. */
  private interruptLateStarts({ lateStarts, undelivered }: Ingested): Effect.Effect<void> {
    return Effect.suspend(() => {
      const { scope, send } = this.options
      for (const turnId of undelivered) this.lost.add(turnId)
      while (this.lost.size > State.maxTurns) this.lost.delete(this.lost.values().next().value!)
      return Effect.forEach(
        lateStarts.filter(turnId => this.lost.delete(turnId)),
        turnId => Effect.forkIn(Effect.ignore(send({ type: "interrupt", turnId })), scope),
        { discard: true }
      )
    })
  }

  /** Counts dropped events. Malformed events are logged once for each type. */
  private report({ dropped, malformed }: Ingested): Effect.Effect<void> {
    return Effect.suspend(() => {
      const { reported, tags } = this.options
      for (const type of dropped) GatewayMetrics.dropped.increment(type, tags)
      const types = [...new Set(malformed)].filter(type => !reported.has(type))
      for (const type of types) reported.add(type)
      return Effect.forEach(
        types,
        type =>
          Effect.logWarning("The agent platform sent an event whose fields do not fit its type").pipe(
            Effect.annotateLogs({ type })
          ),
        { discard: true }
      )
    })
  }
}
