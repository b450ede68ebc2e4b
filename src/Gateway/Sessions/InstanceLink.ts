/**
 * A session's connection to its instance: what the platform sends becomes updates of the session.
 */
import { type Context, Duration, Effect, Exit, Fiber, FiberRef, HashMap, Scope, Stream } from "effect"
import * as MetricTags from "../../MetricTags.ts"
import type { AgentPlatform, AgentPlatformConnectionError } from "../../Upstream/AgentPlatform.ts"
import type { Send } from "../../Upstream/FrameSender.ts"
import { type Received, Undelivered } from "../../Upstream/InstanceConnection.ts"
import type { PlatformEvent } from "../../Upstream/PlatformEvent.ts"
import * as GatewayMetrics from "../GatewayMetrics.ts"
import type { EventBody } from "../Protocol/Event.ts"
import * as SplitCharacters from "../SplitCharacters.ts"
import type { Journal } from "./Journal.ts"
import * as State from "./SessionState.ts"
import { longestReconnection } from "./Settings.ts"

/** An update made of platform events, and what needs attention beside it. */
export interface Ingested {
  readonly update: State.Update
  /** Types of events that clients are not told, each as often as it came. */
  readonly dropped: ReadonlyArray<string>
  /** Known types whose payload did not fit. */
  readonly malformed: ReadonlyArray<string>
  /** Turns that have ended because the delivery of their message is unknown. */
  readonly undelivered: ReadonlyArray<string>
  /** Turns that the agent starts although they have ended. */
  readonly lateStarts: ReadonlyArray<string>
  /** Halves of characters whose other halves have yet to come. */
  readonly halves: SplitCharacters.Halves
}

const textOf = (value: unknown): string | undefined => (typeof value === "string" && value !== "" ? value : undefined)

/** Events that change the session's own state, which the session then publishes itself. */
const ends: ReadonlySet<string> = new Set(["instance.stopped", "instance.failed"])

const applyBody = (state: State.SessionState, body: EventBody, { payload, type }: PlatformEvent): State.Update => {
  if (body.type === "session_state") return ends.has(type) ? State.withoutEvents(state) : State.applyReport(state, body)
  const update = State.applyEvent(state, body)
  // An error that names a pending turn refuses its message, and nothing else would end the turn.
  if (body.type !== "error" || body.turnId === undefined || payload.turnId !== body.turnId) return update
  const { turnId, code, message, retryable } = body
  return State.andThen(update, state => State.endPendingTurns(state, [turnId], State.errored(code, message, retryable)))
}

/** What the end of an instance does to its session. */
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

/** Makes one update of what an instance sends, in order. What comes after the end of the instance is dropped. */
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

/** The ids of the newest events, to recognize those that are sent again. */
export class RecentIds {
  private readonly ids = new Set<string>()

  constructor(private readonly most: number) {}

  /** Whether an event is new; one without an id always is. */
  isNew(received: Received): boolean {
    if (received instanceof Undelivered || received.id === undefined) return true
    const { id } = received
    if (this.ids.has(id)) return false
    this.ids.add(id)
    if (this.ids.size > this.most) this.ids.delete(this.ids.values().next().value!)
    return true
  }
}

/** A connection, from activation to the instance's end. */
export interface InstanceLink {
  readonly instanceId: string
  /** Starts to apply what the instance sends, until it is gone. The session must be running by then. */
  readonly listen: Effect.Effect<void>
  readonly send: Send<AgentPlatformConnectionError>
  /** Waits until it is connected. It fails once there is no further connection. */
  readonly ready: Effect.Effect<void, AgentPlatformConnectionError>
  /** Disconnects. Nothing of the instance reaches the session after that. */
  readonly close: Effect.Effect<void>
}

export interface Options {
  /** For logs. */
  readonly session: string
  readonly instanceId: string
  readonly journal: Journal
  readonly platform: Context.Tag.Service<AgentPlatform>
  /** The types of malformed events that were logged, of all links of a gateway. */
  readonly reported: Set<string>
  /** Run when nothing more will come, after the journal has been updated. */
  readonly onEnd: Effect.Effect<void>
}

/** Events remembered to recognize repetitions, as from a platform that replays more than it was asked for. */
const remembered = 4096

/** Malformed events are logged once for each type. */
const report = ({ dropped, malformed }: Ingested, reported: Set<string>, tags: MetricTags.MetricTags) =>
  Effect.suspend(() => {
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

/** Connects; what the instance sends waits for `listen`. */
export const open = (options: Options): Effect.Effect<InstanceLink, AgentPlatformConnectionError, Scope.Scope> =>
  Effect.gen(function* () {
    const { instanceId, journal, platform, reported } = options
    const outer = yield* Effect.scope
    const tags = yield* MetricTags.current
    const scope = yield* Scope.fork(outer, { _tag: "Sequential" })
    const connection = yield* platform.connect(instanceId).pipe(
      Scope.extend(scope),
      Effect.onError(cause => Scope.close(scope, Exit.failCause(cause)))
    )
    const recent = new RecentIds(remembered)
    const lost = new Set<string>()
    let halves = SplitCharacters.none

    /** Interrupts turns that the agent starts after clients were told of their end, and may have sent them again. */
    const interruptLateStarts = (result: Ingested): Effect.Effect<void> =>
      Effect.suspend(() => {
        for (const turnId of result.undelivered) lost.add(turnId)
        while (lost.size > State.maxTurns) lost.delete(lost.values().next().value!)
        return Effect.forEach(
          result.lateStarts.filter(turnId => lost.delete(turnId)),
          turnId => Effect.forkIn(Effect.ignore(connection.send({ type: "interrupt", turnId })), scope),
          { discard: true }
        )
      })

    const ifOurs =
      (f: (state: State.SessionState) => State.Update) =>
      (state: State.SessionState): State.Update =>
        state.instance?.instanceId === instanceId ? f(state) : State.withoutEvents(state)

    const take = (received: ReadonlyArray<Received>) =>
      Effect.suspend(() => {
        const fresh = received.filter(one => recent.isNew(one))
        if (fresh.length === 0) return Effect.void
        let result: Ingested | undefined
        const update = ifOurs(state => {
          result = ingest(state, fresh, halves)
          return result.update
        })
        return Effect.zipRight(
          journal.updateWithRetry(update),
          Effect.suspend(() => {
            if (result === undefined) return Effect.void
            halves = result.halves
            const isUsual = result.undelivered.length === 0 && result.lateStarts.length === 0
            return isUsual
              ? report(result, reported, tags)
              : Effect.zipRight(interruptLateStarts(result), report(result, reported, tags))
          })
        )
      })

    const receive: Effect.Effect<void, AgentPlatformConnectionError> = Effect.flatMap(
      connection.take,
      ([received, isOver]) => Effect.zipRight(take(received), isOver ? Effect.void : receive)
    )

    /** Follows the state of the connection. It fails once the reconnection takes too long. */
    const watchConnection = Effect.gen(function* () {
      const tooLong = Effect.fail(`it could not be reached for ${Duration.format(longestReconnection)}`)
      let timer: Fiber.Fiber<unknown> | undefined
      const expired = yield* Effect.makeLatch(false)
      const onState = (state: "connected" | "reconnecting" | "closed") =>
        Effect.gen(function* () {
          if (state === "reconnecting" && timer === undefined) {
            timer = yield* Effect.fork(Effect.delay(expired.open, longestReconnection))
            yield* journal.updateWithRetry(
              ifOurs(state => State.transition(state, "disconnected", "the connection was lost"))
            )
          }
          if (state === "connected" && timer !== undefined) {
            yield* Fiber.interrupt(timer)
            timer = undefined
            yield* journal.updateWithRetry(ifOurs(state => State.transition(state, "reconnected")))
          }
        })
      const states = Effect.zipRight(Stream.runForEach(connection.states, onState), Effect.never)
      return yield* Effect.raceFirst(states, Effect.zipRight(expired.await, tooLong))
    })

    const lose = (event: "ended" | "failed", reason: string) =>
      journal.updateWithRetry(
        ifOurs(state =>
          State.isRunning(state)
            ? State.andThen(
                State.endTurns(state, State.errored("instance_lost", `The instance was lost: ${reason}`)),
                state => State.transition(state, event, reason)
              )
            : State.withoutEvents(state)
        )
      )

    const run = Effect.raceFirst(
      Effect.matchEffect(receive, {
        onFailure: error => lose("failed", error.message),
        onSuccess: () => lose("ended", "the instance is gone")
      }),
      Effect.catchAll(watchConnection, reason => lose("failed", reason))
    ).pipe(
      Effect.catchAllCause(cause =>
        Effect.zipRight(
          Effect.logError("The connection of a session to its instance failed", cause),
          lose("failed", "the gateway failed")
        )
      ),
      Effect.zipRight(options.onEnd)
    )
    // It outlives the request that activates the session, whose annotations name that request.
    const annotations = HashMap.make(["session", options.session] as const)
    const detached = Effect.locally(run, FiberRef.currentLogAnnotations, annotations)
    let fiber: Fiber.Fiber<void> | undefined

    return {
      instanceId,
      listen: Effect.map(Effect.forkIn(Effect.interruptible(detached), outer), forked => {
        fiber = forked
      }),
      send: connection.send,
      ready: connection.ready,
      close: Effect.suspend(() =>
        Effect.zipRight(fiber === undefined ? Effect.void : Fiber.interrupt(fiber), Scope.close(scope, Exit.void))
      )
    }
  })
