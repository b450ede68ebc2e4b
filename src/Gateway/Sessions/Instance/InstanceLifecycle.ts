/**
 * Starting, stopping and recovering a session's instance. A session is in one transition at a time.
 */

import { Cause, Deferred, Duration, Effect, Exit, Fiber, FiberId } from "effect"
import type { StoreBusy, StoreUnavailable } from "../../../Kv/Store.ts"
import { type ActivationError, ActivationTimeout, SessionNotActive, SessionNotFound } from "../../Sessions.ts"
import type { SessionCore } from "../Session/SessionCore.ts"
import { randomId } from "../Session/SessionRecords.ts"
import * as State from "../Session/SessionState.ts"
import * as InstanceLink from "./InstanceLink.ts"
import type { LaunchConfiguration } from "./LaunchConfiguration.ts"
import { delayAfter, type PlatformInstances, type Purpose } from "./PlatformInstances.ts"

/** A transition in progress. It continues if callers stop waiting for it. */
interface LifecycleTransition {
  readonly kind: "activation" | "deactivation"
  /** Waits for its end. A transition that was canceled fails with `SessionNotActive`. */
  readonly done: Effect.Effect<void, ActivationError>
  /** Waits until it has ended, successfully or not. */
  readonly ended: Effect.Effect<void>
  /** Interrupts it, and waits until it has ended. */
  readonly cancel: Effect.Effect<void>
}

const resultOf = (exit: Exit.Exit<void, ActivationError>): Exit.Exit<void, ActivationError> =>
  Exit.isInterrupted(exit)
    ? Exit.fail(new SessionNotActive({ message: "The session was stopped in the meantime", mayPass: true }))
    : exit

/** How long the end of a session waits for its instances to stop. */
const stopTimeout = Duration.seconds(15)

/** How long an activation waits for earlier instances to stop. */
const makeRoomTimeout = Duration.seconds(5)

/** The errors of a transition that a deactivation can have: only those of the store. */
const storeErrorOf = (done: LifecycleTransition["done"]): Effect.Effect<void, StoreBusy | StoreUnavailable> =>
  Effect.catchAll(done, error =>
    error._tag === "StoreBusy" || error._tag === "StoreUnavailable" ? Effect.fail(error) : Effect.void
  )

const messageOf = (cause: Cause.Cause<ActivationError>): string => {
  const error = Cause.squash(cause)
  return error instanceof Error && error.message !== "" ? error.message : "the activation failed"
}

/** Starts and stops the instance of one session. Concurrent calls share one transition. */
export class InstanceLifecycle {
  /** There is at most one. */
  private transition: LifecycleTransition | undefined
  private link: InstanceLink.InstanceLink | undefined
  /**
   * When the instance of a failed activation may be stopped, in monotonic milliseconds. Until then the platform may
   * still be creating it.
   */
  private reconcileAt = Number.NEGATIVE_INFINITY

  constructor(
    private readonly session: SessionCore,
    private readonly configuration: LaunchConfiguration,
    private readonly instances: PlatformInstances
  ) {}

  get isActivating(): boolean {
    return this.transition?.kind === "activation"
  }

  /** Whether a transition is in progress or the instance is connected. */
  get isBusy(): boolean {
    return this.transition !== undefined || this.link !== undefined
  }

  /** Whether something must be stopped when the gateway shuts down. */
  get needsShutdown(): boolean {
    const { instance, pendingStops } = this.session.state
    return this.session.isRunning || this.transition !== undefined || instance !== null || pendingStops.length > 0
  }

  /** The connection to the instance, if the session is running. */
  get connection(): InstanceLink.InstanceLink | undefined {
    return this.session.isRunning ? this.link : undefined
  }

  /** Returns the connection to the instance, after an activation if necessary, which concurrent calls share. */
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
      // An agent that lacks secrets or configuration would fail in ways that are hard to understand.
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
   * Stops the session's instance, and cancels an activation in progress. If `isAwaited`, waits for the platform within a
   * timeout.
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
   * Completes a transition that was left unfinished, and stops instances that the session does not use. `SessionReaper`
   * stops idle instances.
   */
  reconcile(): Effect.Effect<void> {
    return Effect.suspend(() => {
      const { instances, session, transition } = this
      const { instance, lifecycle } = session.state
      if (session.shared.isClosing() || session.isGivenUp) return Effect.void
      if (session.journal.isLost()) return Effect.asVoid(this.replaceHistory())
      const isLeft = transition === undefined && session.shared.monotonic() >= this.reconcileAt
      if (isLeft && (lifecycle === "activating" || lifecycle === "deactivating")) {
        return Effect.asVoid(this.begin("deactivation", this.deactivate("left unfinished", false)))
      }
      if (!isLeft || instance === null || session.isRunning) return instances.stopInBackground()
      const release = session.setState(state =>
        // An activation may have started in the meantime.
        state.lifecycle === "inactive" || state.lifecycle === "error" ? State.releaseInstance(state) : state
      )
      return Effect.zipRight(Effect.ignore(release), instances.stopInBackground())
    })
  }

  /** Ends an activation and the connection, after another node has taken the session. */
  abandon(): Effect.Effect<void> {
    return Effect.suspend(() => {
      const { transition } = this
      const ended = transition?.kind === "activation" ? transition.cancel : Effect.void
      return Effect.zipRight(ended, this.disconnect())
    })
  }

  /** Replaces a history that was lost. Concurrent callers wait for the same attempt. */
  replaceLost(): Effect.Effect<void> {
    const ended = Effect.suspend(() => this.transition?.ended ?? Effect.void)
    const attempt = Effect.suspend(() =>
      this.session.journal.isLost() ? Effect.zipRight(this.reconcile(), ended) : Effect.void
    )
    return Effect.suspend(() => (this.transition?.kind === "deactivation" ? Effect.zipRight(ended, attempt) : attempt))
  }

  /** Continues with a new history after the old one was lost. */
  private replaceHistory(): Effect.Effect<void> {
    return Effect.suspend(() => {
      const { configuration, instances, session, transition } = this
      if (transition?.kind === "activation") return Effect.zipRight(transition.cancel, this.replaceHistory())
      if (transition !== undefined) return Effect.void
      const work = Effect.gen(this, function* () {
        yield* this.disconnect()
        yield* configuration.refresh()
        // Without a record there is no session any longer. Its instances are stopped all the same.
        const [missing] = yield* session.shared.records.missing([session.key])
        if (!session.isDeleting && missing !== undefined) session.completeDeletion()
        yield* session.replaceHistory()
        yield* session.journal.update(State.recover)
        yield* instances.stopInBackground()
      }).pipe(
        Effect.catchTag("SessionElsewhere", () =>
          Effect.zipRight(
            Effect.annotateLogs(Effect.logWarning("A session belongs to another node now; this node has dropped it"), {
              session: session.key
            }),
            Effect.sync(() => session.giveUp())
          )
        )
      )
      return Effect.zipRight(
        Effect.logWarning(
          "The history of a session was lost or replaced; the session continues with what is stored"
        ).pipe(Effect.annotateLogs({ session: session.key })),
        Effect.asVoid(this.begin("deactivation", work))
      )
    })
  }

  /** Starts an activation, which waits until the tenant's share allows it. After a failure it is cleaned up. */
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

  /**
   * Starts a transition, which continues without the caller. Returns `undefined` if another one has started since the
   * caller checked: other fibers may run between any two steps of a fiber.
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
      // A fiber that is interruptible from the start may be interrupted before `ensuring`, and would never end the
      // transition.
    }).pipe(Effect.uninterruptible)
  }

  private createAndConnect(): Effect.Effect<void, ActivationError> {
    const { instances, session } = this
    const { monotonic, settings } = session.shared
    return Effect.gen(this, function* () {
      const timeout = settings.activationTimeout
      yield* this.disconnect()
      // A creation of unknown outcome is repeated if it has the same parameters.
      yield* session.setState(state => (instances.isReusable(state.instance) ? state : State.releaseInstance(state)))
      yield* instances.makeRoom(makeRoomTimeout)
      const fresh = yield* randomId
      this.reconcileAt = monotonic() + Duration.toMillis(timeout) + delayAfter(1)
      const { state } = yield* session.journal.update(state => {
        const lost = State.endTurns(state, State.errored("instance_lost", "The instance was lost"))
        return State.andThen(lost, state => {
          const instance = { key: fresh, instanceId: null }
          const next = instances.isReusable(state.instance) ? state : { ...State.releaseInstance(state), instance }
          return State.transition(next, "activate")
        })
      })
      const key = state.instance?.key ?? fresh
      yield* Effect.timeoutFail(this.bringUp(key, key === fresh ? "first" : "again"), {
        duration: timeout,
        onTimeout: () =>
          new ActivationTimeout({
            message: `The agent platform did not start an instance within ${Duration.format(timeout)}`
          })
      })
    }).pipe(
      Effect.withSpan("Sessions.activate", { attributes: { session: session.key }, captureStackTrace: false }),
      Effect.onExit(exit => {
        if (Exit.isSuccess(exit)) return Effect.void
        // The caller that interrupts an activation sets the next state.
        if (Exit.isInterrupted(exit)) return this.disconnect()
        const failed = session.journal.update(state => State.transition(state, "failed", messageOf(exit.cause)))
        return Effect.zipRight(this.disconnect(), Effect.ignore(failed))
      })
    )
  }

  /** The key of an instance is stored before the request, and the id before the connection. */
  private bringUp(key: string, purpose: Purpose) {
    return Effect.gen(this, function* () {
      const { instances, session } = this
      const instanceId = yield* instances.create(key, purpose)
      yield* session.setState(state => State.setInstanceId(state, key, instanceId))
      this.reconcileAt = Number.NEGATIVE_INFINITY
      const link = yield* this.connect(instanceId)
      this.link = link
      yield* session.journal.update(state => State.transition(state, "activated"))
      yield* link.listen
    })
  }

  private connect(instanceId: string) {
    const onEnd = Effect.suspend(() => {
      const { link } = this
      if (link?.instanceId !== instanceId) return Effect.void
      this.link = undefined
      // The link cannot wait for its own end.
      return Effect.zipRight(Effect.forkIn(link.close, this.session.shared.scope), this.reconcile())
    })
    return InstanceLink.open(this.session, instanceId, onEnd)
  }

  private disconnect(): Effect.Effect<void> {
    return Effect.suspend(() => {
      const { link } = this
      this.link = undefined
      return link === undefined ? Effect.void : link.close
    })
  }

  private deactivate(reason: string, isAwaited: boolean): Effect.Effect<void, StoreBusy | StoreUnavailable> {
    const { instances, session } = this
    return Effect.gen(this, function* () {
      yield* session.journal.update(state =>
        State.andThen(State.endTurns(State.releaseInstance(state), State.interrupted(reason)), state =>
          State.transition(state, "deactivate", reason)
        )
      )
      yield* this.disconnect()
      yield* isAwaited ? instances.stopPending(stopTimeout) : instances.stopInBackground()
      yield* session.journal.update(state => State.transition(state, "deactivated"))
    }).pipe(
      Effect.withSpan("Sessions.deactivate", { attributes: { session: session.key, reason }, captureStackTrace: false })
    )
  }
}
