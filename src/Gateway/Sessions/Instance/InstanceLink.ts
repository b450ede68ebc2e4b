/**
 * A session's connection to its instance. What it receives becomes updates of the session: `ingest` makes them and is
 * pure, and `EventIntake` stores them and does what follows.
 */

import { Duration, Effect, Exit, Fiber, FiberRef, HashMap, Scope, Stream } from "effect"
import * as Direct from "../../../base/Direct.ts"
import {
  type AgentPlatformConnectionError,
  type ConnectionState,
  type InstanceConnection,
  type Received,
  type Send,
  Undelivered
} from "../../../Upstream/AgentPlatform.ts"
import type { PlatformEvent } from "../../../Upstream/PlatformEvent.ts"
import * as EventMapping from "../../EventMapping.ts"
import * as GatewayMetrics from "../../GatewayMetrics.ts"
import type { EventBody } from "../../Protocol/Event.ts"
import type { SessionCore } from "../Session/SessionCore.ts"
import * as State from "../Session/SessionState.ts"
import { reconnectTimeout } from "../Settings.ts"

/** An update made of platform events, and what else the caller has to handle. */
interface Ingested {
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

/** Event ids that are kept. A platform may replay more events than requested. */
const maxRecentIds = 4096

/** Updates the session of an instance. Does nothing if the session has another instance, or none. */
type UpdateSession = (f: (state: State.SessionState) => State.Update) => Effect.Effect<void>

const sizeOf = (received: ReadonlyArray<Received>): number =>
  received.reduce((sum, one) => sum + (one instanceof Undelivered ? 0 : (one.size ?? 0)), 0)

/** Events are to be taken one batch after the other, in order. */
class EventIntake {
  private readonly recent = new RecentIds(maxRecentIds)
  /** Turns that have ended because their message may have been lost. */
  private readonly lost = new Set<string>()
  private halves = EventMapping.noHalves

  constructor(
    private readonly session: SessionCore,
    private readonly updateSession: UpdateSession,
    private readonly send: Send<AgentPlatformConnectionError>,
    /** The scope of interrupts that are sent in the background. */
    private readonly scope: Scope.Scope
  ) {}

  /** Applies the events that are new, in one update. Waits until the update is stored. The effect is direct. */
  take(received: ReadonlyArray<Received>): Effect.Effect<void> {
    return Direct.suspend(() => {
      const fresh = received.filter(one => this.recent.isNew(one))
      if (fresh.length === 0) return Exit.void
      let result: Ingested | undefined
      const updated = this.updateSession(state => {
        result = ingest(state, fresh, this.halves)
        return result.update
      })
      return Direct.flatMap(this.session.shared.paced(this.session.record.tenant, sizeOf(fresh), updated), () =>
        result === undefined ? Exit.void : this.onApplied(result)
      )
    })
  }

  private onApplied(result: Ingested): Effect.Effect<void> {
    const { dropped, lateStarts, malformed, undelivered } = result
    const { tags } = this.session.shared
    this.halves = result.halves
    for (const type of dropped) GatewayMetrics.dropped.increment(type, tags)
    for (const turnId of undelivered) this.lost.add(turnId)
    while (this.lost.size > State.maxTurns) this.lost.delete(this.lost.values().next().value!)
    return lateStarts.length + malformed.length === 0
      ? Exit.void
      : Effect.zipRight(this.interrupt(lateStarts), this.report(malformed))
  }

  /** Interrupts turns that the agent starts after their end was published: clients may have sent them again. */
  private interrupt(lateStarts: ReadonlyArray<string>): Effect.Effect<void> {
    return Effect.forEach(
      lateStarts.filter(turnId => this.lost.delete(turnId)),
      turnId => Effect.forkIn(Effect.ignore(this.send({ type: "interrupt", turnId })), this.scope),
      { discard: true }
    )
  }

  /** Logs malformed events, once for each type. */
  private report(malformed: ReadonlyArray<string>): Effect.Effect<void> {
    const { malformedTypes } = this.session.shared
    const types = [...new Set(malformed)].filter(type => !malformedTypes.has(type))
    for (const type of types) malformedTypes.add(type)
    const message = "The agent platform sent an event whose fields do not fit its type"
    return Effect.forEach(types, type => Effect.annotateLogs(Effect.logWarning(message), { type }), { discard: true })
  }
}

/** Ends the turns of a session whose instance was lost, and its run. */
const lose = (updateSession: UpdateSession, event: "ended" | "failed", reason: string): Effect.Effect<void> =>
  updateSession(state =>
    State.isRunning(state)
      ? State.andThen(
          State.endTurns(state, State.errored("instance_lost", `The instance was lost: ${reason}`)),
          state => State.transition(state, event, reason)
        )
      : State.withoutEvents(state)
  )

/** Publishes the state of the connection. Fails with the reason if a reconnection takes too long. */
const publishStates = (
  states: Stream.Stream<ConnectionState>,
  updateSession: UpdateSession
): Effect.Effect<never, string> => {
  const tooLong = Effect.fail(`it could not be reached for ${Duration.format(reconnectTimeout)}`)
  const onState = (state: ConnectionState): Effect.Effect<void, string> => {
    if (state === "closed") return Effect.void
    // It has no effect in a session that is not reconnecting.
    if (state === "connected") return updateSession(state => State.transition(state, "reconnected"))
    const lost = updateSession(state => State.transition(state, "disconnected", "the connection was lost"))
    return Effect.zipRight(lost, Effect.delay(tooLong, reconnectTimeout))
  }
  // The next state ends what the one before waits for.
  const published = Stream.flatMap(states, onState, { switch: true })
  return Effect.zipRight(Stream.runDrain(published), Effect.never)
}

/** Applies what an instance sends, until it has ended or is lost. */
const applyAll = (
  { states, take }: InstanceConnection<AgentPlatformConnectionError>,
  intake: EventIntake,
  updateSession: UpdateSession
): Effect.Effect<void> => {
  const applied = Direct.flatMap(take, ([received, isOver]) => Direct.map(intake.take(received), () => !isOver))
  return Effect.raceFirst(
    Effect.matchEffect(Direct.repeatWhile(applied), {
      onFailure: error => lose(updateSession, "failed", error.message),
      onSuccess: () => lose(updateSession, "ended", "the instance has ended")
    }),
    Effect.catchAll(publishStates(states, updateSession), reason => lose(updateSession, "failed", reason))
  ).pipe(
    Effect.catchAllCause(cause =>
      Effect.zipRight(
        Effect.logError("The connection of a session to its instance failed", cause),
        lose(updateSession, "failed", "the gateway failed")
      )
    )
  )
}

/** A connection, from activation to the instance's end. */
export interface InstanceLink {
  readonly instanceId: string
  /** Starts to apply the events of the instance, until it ends. The session must be running. */
  readonly listen: Effect.Effect<void>
  readonly send: Send<AgentPlatformConnectionError>
  /** Waits until it is connected. Fails if there will be no further connection. */
  readonly ready: Effect.Effect<void, AgentPlatformConnectionError>
  /** Disconnects. No event of the instance reaches the session after that. */
  readonly close: Effect.Effect<void>
}

/** Connects to an instance of a session. Events wait until `listen`. `onEnd` is run after the last one was applied. */
export const open = (
  session: SessionCore,
  instanceId: string,
  onEnd: Effect.Effect<void>
): Effect.Effect<InstanceLink, AgentPlatformConnectionError> =>
  Effect.gen(function* () {
    const { journal, key, shared } = session
    const scope = yield* Scope.fork(shared.scope, { _tag: "Sequential" })
    const connection = yield* shared.platform.connect(instanceId).pipe(
      Scope.extend(scope),
      Effect.onError(cause => Scope.close(scope, Exit.failCause(cause)))
    )
    const { ready, send } = connection
    const updateSession: UpdateSession = f =>
      journal.updateWithRetry(state =>
        state.instance?.instanceId === instanceId ? f(state) : State.withoutEvents(state)
      )
    const intake = new EventIntake(session, updateSession, send, scope)
    // It outlives the request that activates the session, so it does not have that request's log annotations.
    const listening = Effect.zipRight(applyAll(connection, intake, updateSession), onEnd).pipe(
      Effect.locally(FiberRef.currentLogAnnotations, HashMap.make(["session", key] as const))
    )
    let fiber: Fiber.Fiber<void> | undefined

    return {
      instanceId,
      listen: Effect.map(Effect.forkIn(Effect.interruptible(listening), shared.scope), forked => {
        fiber = forked
      }),
      send,
      ready,
      close: Effect.suspend(() =>
        Effect.zipRight(fiber === undefined ? Effect.void : Fiber.interrupt(fiber), Scope.close(scope, Exit.void))
      )
    }
  })
