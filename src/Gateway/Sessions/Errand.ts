import { Deferred, Effect, Exit, Fiber, FiberId, type Scope } from "effect"
import { type ActivationError, SessionNotActive } from "../Sessions.ts"

/** Something that brings a session into another state, one at a time for each, whoever waits for it. */
export interface Errand {
  readonly kind: "activation" | "deactivation"
  /** Waits for its end. Whoever leaves harms nobody; one that is given up fails with `SessionNotActive`. */
  readonly done: Effect.Effect<void, ActivationError>
  /** Waits until it is over, however it ended. */
  readonly over: Effect.Effect<void>
  /** Gives it up, and waits until it is over. */
  readonly cancel: Effect.Effect<void>
}

const resultOf = (exit: Exit.Exit<void, ActivationError>): Exit.Exit<void, ActivationError> =>
  Exit.isInterrupted(exit)
    ? Exit.fail(new SessionNotActive({ message: "The session was stopped meanwhile", mayPass: true }))
    : exit

/** Runs an errand in a scope, so that it goes on without whoever began it. `onEnd` runs before anybody is told. */
export const start = (
  kind: Errand["kind"],
  scope: Scope.Scope,
  work: Effect.Effect<void, ActivationError>,
  onEnd: () => void
): Effect.Effect<Errand> =>
  Effect.gen(function* () {
    const done = Deferred.unsafeMake<void, ActivationError>(FiberId.none)
    const begun = yield* Effect.makeLatch(false)
    const finish = (exit: Exit.Exit<void, ActivationError>) =>
      Effect.suspend(() => {
        onEnd()
        return Deferred.done(done, resultOf(exit))
      })
    const fiber = yield* Effect.forkIn(
      Effect.zipRight(begun.await, Effect.flatMap(Effect.exit(Effect.interruptible(work)), finish)),
      scope
    )
    yield* begun.open
    return {
      kind,
      done: Deferred.await(done),
      over: Effect.asVoid(Effect.exit(Deferred.await(done))),
      cancel: Effect.asVoid(Fiber.interrupt(fiber))
    }
    // A fiber that starts out interruptible may be interrupted before it has begun, and would never tell.
  }).pipe(Effect.uninterruptible)
