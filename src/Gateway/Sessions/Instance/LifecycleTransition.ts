/** The transition of a session, of which there is at most one: the start or the end of its instance. */
import { Deferred, Effect, Exit, Fiber, FiberId, type Scope } from "effect"
import { type ActivationError, SessionNotActive } from "../../Sessions.ts"

/** A transition in progress. It continues if callers stop waiting for it. */
export interface LifecycleTransition {
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

/** The transition of a session, of which there is at most one. */
export class CurrentTransition {
  private current: LifecycleTransition | undefined

  /**
   * @param scope in which transitions run
   * @param onEnd called at the end of each transition
   */
  constructor(
    private readonly scope: Scope.Scope,
    private readonly onEnd: () => void
  ) {}

  get(): LifecycleTransition | undefined {
    return this.current
  }

  /**
   * Starts a transition, which continues without the caller. Returns `undefined` if another one has started since the
   * caller checked: other fibers may run between any two steps of a fiber.
   */
  begin(
    kind: LifecycleTransition["kind"],
    work: Effect.Effect<void, ActivationError>
  ): Effect.Effect<LifecycleTransition | undefined> {
    return Effect.suspend(() => {
      if (this.current !== undefined) return Effect.succeed(undefined)
      const forked = Deferred.unsafeMake<Fiber.RuntimeFiber<void, ActivationError>>(FiberId.none)
      const fiber = Deferred.await(forked)
      const exit = Effect.flatMap(fiber, Fiber.await)
      const transition: LifecycleTransition = {
        kind,
        done: Effect.flatMap(exit, resultOf),
        ended: Effect.asVoid(exit),
        cancel: Effect.asVoid(Effect.flatMap(fiber, Fiber.interrupt))
      }
      this.current = transition
      const end = Effect.sync(() => {
        this.current = undefined
        this.onEnd()
      })
      const run = Effect.forkIn(Effect.ensuring(Effect.interruptible(work), end), this.scope)
      return Effect.as(Deferred.complete(forked, run), transition)
      // A fiber that is interruptible from the start may be interrupted before `ensuring`, and would never end the
      // transition.
    }).pipe(Effect.uninterruptible)
  }
}
