/**
 * A session's connection to its instance. Events of the platform become updates of the session.
 */
import { type Context, Duration, Effect, Exit, Fiber, FiberRef, HashMap, Scope, Stream } from "effect"
import * as MetricTags from "../../../base/MetricTags.ts"
import type {
  AgentPlatform,
  AgentPlatformConnectionError,
  ConnectionState,
  InstanceConnection,
  Send
} from "../../../Upstream/AgentPlatform.ts"
import type { Journal } from "../Session/Journal.ts"
import type { Paced } from "../Session/LargeEvents.ts"
import * as State from "../Session/SessionState.ts"
import { reconnectTimeout } from "../Settings.ts"
import { EventIntake, type UpdateSession } from "./EventIntake.ts"

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

/** The instance, and the session that its events update. */
export interface Options {
  /** `<tenant>/<id>`, for logs. */
  readonly session: string
  readonly instanceId: string
  readonly journal: Journal
  readonly platform: Context.Tag.Service<AgentPlatform>
  /** Runs an update by large events in their turn. */
  readonly paced: Paced
  /** The types of malformed events that were logged, for all links of a gateway. */
  readonly reported: Set<string>
  /** Run after the last event, when the journal has been updated. */
  readonly onEnd: Effect.Effect<void>
}

const updatesBy =
  (journal: Journal, instanceId: string): UpdateSession =>
  f =>
    journal.updateWithRetry(state =>
      state.instance?.instanceId === instanceId ? f(state) : State.withoutEvents(state)
    )

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
): Effect.Effect<never, string> =>
  Effect.gen(function* () {
    let timer: Fiber.Fiber<unknown> | undefined
    const expired = yield* Effect.makeLatch(false)
    const onState = (state: ConnectionState) =>
      Effect.gen(function* () {
        if (state === "reconnecting" && timer === undefined) {
          timer = yield* Effect.fork(Effect.delay(expired.open, reconnectTimeout))
          yield* updateSession(state => State.transition(state, "disconnected", "the connection was lost"))
        }
        if (state === "connected" && timer !== undefined) {
          yield* Fiber.interrupt(timer)
          timer = undefined
          yield* updateSession(state => State.transition(state, "reconnected"))
        }
      })
    const published = Effect.zipRight(Stream.runForEach(states, onState), Effect.never)
    const timedOut = Effect.fail(`it could not be reached for ${Duration.format(reconnectTimeout)}`)
    return yield* Effect.raceFirst(published, Effect.zipRight(expired.await, timedOut))
  })

/** Applies what an instance sends, until it has ended or is lost. */
const applyAll = (
  { states, take }: InstanceConnection<AgentPlatformConnectionError>,
  intake: EventIntake,
  updateSession: UpdateSession
): Effect.Effect<void> => {
  const receive: Effect.Effect<void, AgentPlatformConnectionError> = Effect.flatMap(take, ([received, isOver]) =>
    Effect.zipRight(intake.take(received), isOver ? Effect.void : receive)
  )
  return Effect.raceFirst(
    Effect.matchEffect(receive, {
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

/** Connects. Events wait until `listen`. */
export const open = ({
  instanceId,
  journal,
  onEnd,
  paced,
  platform,
  reported,
  session
}: Options): Effect.Effect<InstanceLink, AgentPlatformConnectionError, Scope.Scope> =>
  Effect.gen(function* () {
    const outer = yield* Effect.scope
    const tags = yield* MetricTags.current
    const scope = yield* Scope.fork(outer, { _tag: "Sequential" })
    const connection = yield* platform.connect(instanceId).pipe(
      Scope.extend(scope),
      Effect.onError(cause => Scope.close(scope, Exit.failCause(cause)))
    )
    const { ready, send } = connection
    const updateSession = updatesBy(journal, instanceId)
    const intake = new EventIntake({ updateSession, paced, send, scope, reported, tags })
    // It outlives the request that activates the session, so it does not have that request's log annotations.
    const annotations = HashMap.make(["session", session] as const)
    const listening = Effect.zipRight(applyAll(connection, intake, updateSession), onEnd).pipe(
      Effect.locally(FiberRef.currentLogAnnotations, annotations)
    )
    let fiber: Fiber.Fiber<void> | undefined

    return {
      instanceId,
      listen: Effect.map(Effect.forkIn(Effect.interruptible(listening), outer), forked => {
        fiber = forked
      }),
      send,
      ready,
      close: Effect.suspend(() =>
        Effect.zipRight(fiber === undefined ? Effect.void : Fiber.interrupt(fiber), Scope.close(scope, Exit.void))
      )
    }
  })
