/**
 * A session's connection to its instance. Events of the platform become updates of the session.
 */
import { type Context, Duration, Effect, Exit, Fiber, FiberRef, HashMap, Scope, Stream } from "effect"
import * as MetricTags from "../../MetricTags.ts"
import type { AgentPlatform, AgentPlatformConnectionError } from "../../Upstream/AgentPlatform.ts"
import type { Send } from "../../Upstream/FrameSender.ts"
import { type Received, Undelivered } from "../../Upstream/InstanceConnection.ts"
import * as GatewayMetrics from "../GatewayMetrics.ts"
import * as SplitCharacters from "../SplitCharacters.ts"
import { type Ingested, ingest } from "./Ingestion.ts"
import type { Journal } from "./Journal.ts"
import * as State from "./SessionState.ts"
import { reconnectTimeout } from "./Settings.ts"

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

export interface Options {
  /** `<tenant>/<id>`, for logs. */
  readonly session: string
  readonly instanceId: string
  readonly journal: Journal
  readonly platform: Context.Tag.Service<AgentPlatform>
  /** The types of malformed events that were logged, for all links of a gateway. */
  readonly reported: Set<string>
  /** Run after the last event, when the journal has been updated. */
  readonly onEnd: Effect.Effect<void>
}

/** Event ids that are kept. A platform may replay more events than requested. */
const maxRecentIds = 4096

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

/** Connects. Events wait until `listen`. */
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
    const recent = new RecentIds(maxRecentIds)
    const lost = new Set<string>()
    let halves = SplitCharacters.none

    /** Interrupts turns that the agent starts after their end was published: clients may have sent them again. */
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

    /** Publishes the state of the connection. Fails if a reconnection takes too long. */
    const watchConnection = Effect.gen(function* () {
      const timedOut = Effect.fail(`it could not be reached for ${Duration.format(reconnectTimeout)}`)
      let timer: Fiber.Fiber<unknown> | undefined
      const expired = yield* Effect.makeLatch(false)
      const onState = (state: "connected" | "reconnecting" | "closed") =>
        Effect.gen(function* () {
          if (state === "reconnecting" && timer === undefined) {
            timer = yield* Effect.fork(Effect.delay(expired.open, reconnectTimeout))
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
      return yield* Effect.raceFirst(states, Effect.zipRight(expired.await, timedOut))
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
        onSuccess: () => lose("ended", "the instance has ended")
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
    // It outlives the request that activates the session, so it does not have that request's log annotations.
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
