/**
 * Starting, stopping and recovering a session's instance. A session is in one transition at a time.
 */
import { Cause, Deferred, Duration, Effect, Exit, Fiber, FiberId, Scope } from "effect"
import type { StoreBusy, StoreUnavailable } from "../../Kv/Store.ts"
import { type ActivationError, ActivationTimeout, SessionNotActive, SessionNotFound } from "../Sessions.ts"
import { delayAfter, type InstanceCleanup } from "./InstanceCleanup.ts"
import type { InstanceCreation, Purpose } from "./InstanceCreation.ts"
import * as InstanceLink from "./InstanceLink.ts"
import type { LaunchConfiguration } from "./LaunchConfiguration.ts"
import type { SessionCore } from "./SessionCore.ts"
import { randomId } from "./SessionRecords.ts"
import * as State from "./SessionState.ts"

/** How long the end of a session waits for its instances to stop. */
const stopLimit = Duration.seconds(15)

/** How long an activation waits for earlier instances to stop. */
const makeRoomLimit = Duration.seconds(5)

/** A transition in progress. It goes on whoever waits for it. */
interface LifecycleTransition {
  readonly kind: "activation" | "deactivation"
  /** Waits for its end. One that was canceled fails with `SessionNotActive`. */
  readonly done: Effect.Effect<void, ActivationError>
  /** Waits until it has ended, successfully or not. */
  readonly ended: Effect.Effect<void>
  /** Interrupts it, and waits until it has ended. */
  readonly cancel: Effect.Effect<void>
}

const resultOf = (exit: Exit.Exit<void, ActivationError>): Exit.Exit<void, ActivationError> =>
  Exit.isInterrupted(exit)
    ? Exit.fail(new SessionNotActive({ message: "The session was stopped meanwhile", mayPass: true }))
    : exit

/** Of the errors of a transition, only those of the store concern a deactivation. */
const storeErrorOf = (done: LifecycleTransition["done"]): Effect.Effect<void, StoreBusy | StoreUnavailable> =>
  Effect.catchAll(done, error =>
    error._tag === "StoreBusy" || error._tag === "StoreUnavailable" ? Effect.fail(error) : Effect.void
  )

const messageOf = (cause: Cause.Cause<ActivationError>): string => {
  const error = Cause.squash(cause)
  return error instanceof Error && error.message !== "" ? error.message : "the activation failed"
}

export class InstanceLifecycle {
  private transition: LifecycleTransition | undefined
  private link: InstanceLink.InstanceLink | undefined
  /**
   * Until when the remains of a failed activation are left alone, in monotonic milliseconds: the platform may still be
   * at work for it.
   */
  private reconcileAt = Number.NEGATIVE_INFINITY

  constructor(
    private readonly session: SessionCore,
    private readonly configuration: LaunchConfiguration,
    private readonly creation: InstanceCreation,
    private readonly cleanup: InstanceCleanup
  ) {}

  get isActivating(): boolean {
    return this.transition?.kind === "activation"
  }

  /** Whether a transition is in progress or there is a connection. */
  get isBusy(): boolean {
    return this.transition !== undefined || this.link !== undefined
  }

  /** Whether there is anything to stop when the gateway shuts down. */
  get needsShutdown(): boolean {
    const { instance, pendingStops } = this.session.state
    return this.session.isRunning || this.transition !== undefined || instance !== null || pendingStops.length > 0
  }

  /** The connection to the instance of a session that runs. */
  get connection(): InstanceLink.InstanceLink | undefined {
    return this.session.isRunning ? this.link : undefined
  }

  /** The connection to the instance, which is activated first where there is none. Concurrent calls share that. */
  activate(): Effect.Effect<InstanceLink.InstanceLink, ActivationError> {
    return Effect.gen(this, function* () {
      const { connection, session, transition } = this
      if (session.isDeleting) return yield* new SessionNotFound({ sessionId: session.record.id })
      if (session.shared.isClosing()) {
        return yield* new SessionNotActive({ message: "The gateway is shutting down", mayPass: true })
      }
      if (transition?.kind === "deactivation") {
        yield* transition.ended
        return yield* this.activate()
      }
      if (connection !== undefined) return connection
      // An agent without all that it was given would fail in ways that are hard to understand.
      const { error } = this.configuration
      if (error !== undefined) return yield* error
      const activation = transition ?? (yield* this.beginActivation())
      if (activation === undefined) return yield* this.activate()
      yield* activation.done
      if (this.connection !== undefined) return this.connection
      return yield* new SessionNotActive({ message: "The instance ended right after its start", mayPass: true })
    })
  }

  /**
   * Stops the session's instance; an activation in progress is canceled. `isAwaited` says whether to wait for the
   * platform, within a limit.
   */
  stop(reason: string, isAwaited = true): Effect.Effect<void, StoreBusy | StoreUnavailable> {
    return Effect.gen(this, function* () {
      const { transition } = this
      const { instance, lifecycle } = this.session.state
      if (transition?.kind === "deactivation" && lifecycle === "deactivating")
        return yield* storeErrorOf(transition.done)
      if (transition !== undefined) {
        yield* transition.kind === "activation" ? transition.cancel : transition.ended
        return yield* this.stop(reason, isAwaited)
      }
      if (lifecycle === "inactive" && instance === null) return
      const deactivation = yield* this.begin("deactivation", this.deactivate(reason, isAwaited))
      yield* deactivation === undefined ? this.stop(reason, isAwaited) : storeErrorOf(deactivation.done)
    })
  }

  /**
   * Completes a transition that was left unfinished, and has instances stopped that the session has no use for. An
   * instance that is idle is stopped by `SessionReaper`.
   */
  reconcile(): Effect.Effect<void> {
    return Effect.suspend(() => {
      const { cleanup, session, transition } = this
      const { instance, lifecycle } = session.state
      if (session.shared.isClosing() || session.isGivenUp) return Effect.void
      if (session.journal.isLost()) return Effect.asVoid(this.replaceHistory())
      const isLeft = transition === undefined && session.shared.monotonic() >= this.reconcileAt
      if (isLeft && (lifecycle === "activating" || lifecycle === "deactivating")) {
        return Effect.asVoid(this.begin("deactivation", this.deactivate("left unfinished", false)))
      }
      if (!isLeft || instance === null || session.isRunning) return cleanup.runInBackground()
      const release = session.setState(state =>
        // An activation may have begun meanwhile.
        state.lifecycle === "inactive" || state.lifecycle === "error" ? State.releaseInstance(state) : state
      )
      return Effect.zipRight(Effect.ignore(release), cleanup.runInBackground())
    })
  }

  /** Continues with another history where the session's was lost. */
  private replaceHistory(): Effect.Effect<void> {
    return Effect.suspend(() => {
      const { cleanup, configuration, session, transition } = this
      if (transition?.kind === "activation") return Effect.zipRight(transition.cancel, this.replaceHistory())
      if (transition !== undefined) return Effect.void
      const work = Effect.gen(this, function* () {
        yield* this.disconnect()
        yield* configuration.refresh()
        yield* session.replaceHistory()
        yield* session.journal.update(State.recover)
        yield* cleanup.runInBackground()
      }).pipe(
        Effect.catchTag("SessionElsewhere", () =>
          Effect.zipRight(
            Effect.annotateLogs(Effect.logWarning("A session belongs to another node now; it is given up here"), {
              session: session.key
            }),
            Effect.sync(() => session.giveUp())
          )
        )
      )
      return Effect.zipRight(
        Effect.logWarning("The history of a session is not what it was; the session goes on with what there is").pipe(
          Effect.annotateLogs({ session: session.key })
        ),
        Effect.asVoid(this.begin("deactivation", work))
      )
    })
  }

  /**
   * Begins a transition, which goes on without the caller. Returns `undefined` where another one has begun since the
   * caller looked: between any two steps of a fiber others may run.
   */
  private begin(
    kind: LifecycleTransition["kind"],
    work: Effect.Effect<void, ActivationError>
  ): Effect.Effect<LifecycleTransition | undefined> {
    return Effect.suspend(() => {
      if (this.transition !== undefined) return Effect.succeed(undefined)
      const forked = Deferred.unsafeMake<Fiber.RuntimeFiber<void, ActivationError>>(FiberId.none)
      const fiber = Deferred.await(forked)
      const exit = Effect.flatMap(fiber, Fiber.await)
      const transition: LifecycleTransition = {
        kind,
        done: Effect.flatMap(exit, resultOf),
        ended: Effect.asVoid(exit),
        cancel: Effect.asVoid(Effect.flatMap(fiber, Fiber.interrupt))
      }
      this.transition = transition
      const end = Effect.sync(() => {
        this.transition = undefined
        this.session.touch()
      })
      const run = Effect.forkIn(Effect.ensuring(Effect.interruptible(work), end), this.session.shared.scope)
      return Effect.as(Deferred.complete(forked, run), transition)
      // A fiber that starts out interruptible may be interrupted before it has begun, and would never end the transition.
    }).pipe(Effect.uninterruptible)
  }

  /** Begins an activation, which waits until the tenants' share allows it; one that fails is cleaned up after. */
  private beginActivation(): Effect.Effect<LifecycleTransition | undefined> {
    const { record, shared } = this.session
    const { activations, scope, settings } = shared
    const limited = activations.use(record.tenant, 1, () => this.createAndConnect(), settings.activationTimeout)
    const whenFailed = ({ done }: LifecycleTransition) =>
      Effect.catchAll(done, error => (error._tag === "SessionNotActive" ? Effect.void : this.reconcile()))
    return Effect.tap(this.begin("activation", limited), begun =>
      begun === undefined ? Effect.void : Effect.forkIn(whenFailed(begun), scope)
    )
  }

  private createAndConnect(): Effect.Effect<void, ActivationError> {
    const { cleanup, creation, session } = this
    const { monotonic, settings } = session.shared
    return Effect.gen(this, function* () {
      const limit = settings.activationTimeout
      yield* this.disconnect()
      // A creation of unknown outcome is continued where it is the same that is wanted now.
      yield* session.setState(state => (creation.isReusable(state.instance) ? state : State.releaseInstance(state)))
      yield* cleanup.makeRoom(makeRoomLimit)
      const fresh = yield* randomId
      this.reconcileAt = monotonic() + Duration.toMillis(limit) + delayAfter(1)
      const { state } = yield* session.journal.update(state => {
        const lost = State.endTurns(state, State.errored("instance_lost", "The instance was lost"))
        return State.andThen(lost, state => {
          const instance = { key: fresh, instanceId: null }
          const next = creation.isReusable(state.instance) ? state : { ...State.releaseInstance(state), instance }
          return State.transition(next, "activate")
        })
      })
      const key = state.instance?.key ?? fresh
      yield* Effect.timeoutFail(this.bringUp(key, key === fresh ? "first" : "again"), {
        duration: limit,
        onTimeout: () =>
          new ActivationTimeout({
            message: `The agent platform did not bring an instance up within ${Duration.format(limit)}`
          })
      })
    }).pipe(
      Effect.withSpan("Sessions.activate", { attributes: { session: session.key } }),
      Effect.onExit(exit => {
        if (Exit.isSuccess(exit)) return Effect.void
        // Whoever interrupts an activation decides on the state that follows.
        if (Exit.isInterrupted(exit)) return this.disconnect()
        const failed = session.journal.update(state => State.transition(state, "failed", messageOf(exit.cause)))
        return Effect.zipRight(this.disconnect(), Effect.ignore(failed))
      })
    )
  }

  /** The key of an instance is stored before it is used, and the id before it is relied on. */
  private bringUp(key: string, purpose: Purpose) {
    return Effect.gen(this, function* () {
      const { creation, session } = this
      const instanceId = yield* creation.create(key, purpose)
      yield* session.setState(state => State.setInstanceId(state, key, instanceId))
      this.reconcileAt = Number.NEGATIVE_INFINITY
      const link = yield* this.connect(instanceId)
      this.link = link
      yield* session.journal.update(state => State.transition(state, "activated"))
      yield* link.listen
    })
  }

  private connect(instanceId: string) {
    const { journal, key, shared } = this.session
    const onEnd = Effect.suspend(() => {
      const { link } = this
      if (link?.instanceId !== instanceId) return Effect.void
      this.link = undefined
      // The link cannot wait for its own end.
      return Effect.zipRight(Effect.forkIn(link.close, shared.scope), this.reconcile())
    })
    return Effect.provideService(
      InstanceLink.open({
        ...{ session: key, instanceId, journal, onEnd },
        platform: shared.platform,
        reported: shared.malformedTypes
      }),
      Scope.Scope,
      shared.scope
    )
  }

  private disconnect(): Effect.Effect<void> {
    return Effect.suspend(() => {
      const { link } = this
      this.link = undefined
      return link === undefined ? Effect.void : link.close
    })
  }

  private deactivate(reason: string, isAwaited: boolean): Effect.Effect<void, StoreBusy | StoreUnavailable> {
    const { cleanup, session } = this
    return Effect.gen(this, function* () {
      yield* session.journal.update(state =>
        State.andThen(State.endTurns(State.releaseInstance(state), State.interrupted(reason)), state =>
          State.transition(state, "deactivate", reason)
        )
      )
      yield* this.disconnect()
      yield* isAwaited ? cleanup.run(stopLimit) : cleanup.runInBackground()
      yield* session.journal.update(state => State.transition(state, "deactivated"))
    }).pipe(Effect.withSpan("Sessions.deactivate", { attributes: { session: session.key, reason } }))
  }
}
