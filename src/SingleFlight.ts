/**
 * Computations that callers share: who asks while one is under way gets its result, too. An interrupted caller does not
 * affect the others.
 */
import { Deferred, Effect, FiberId, type Scope } from "effect"

/**
 * Computes a result in a fiber of a scope. Those who wait for it are always told: where the computation is interrupted,
 * also before it has begun, or the scope closes, they are interrupted. `onExit` runs before; it must not throw.
 */
const compute = <A, E, R>(
  work: Effect.Effect<A, E, R>,
  result: Deferred.Deferred<A, E>,
  scope: Scope.Scope,
  onExit: () => void
): Effect.Effect<void, never, R> => {
  const computing = Effect.onExit(Effect.interruptible(work), exit =>
    Effect.suspend(() => {
      onExit()
      return Deferred.done(result, exit)
    })
  )
  // The fiber inherits the uninterruptible region, without which it could end before it has entered `onExit`.
  return Effect.uninterruptible(Effect.asVoid(Effect.forkIn(computing, scope)))
}

/** Computations by keys: at most one for each key at a time, each in a fiber of its own. */
export class SingleFlight<K, A, E = never> {
  private readonly running = new Map<K, Deferred.Deferred<A, E>>()

  /** @param scope of the computations, which outlive the callers that began them */
  constructor(private readonly scope: Scope.Scope) {}

  isRunning(key: K): boolean {
    return this.running.has(key)
  }

  /** Joins the computation of a key that is under way, or begins one. */
  run<R>(key: K, work: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> {
    return Effect.uninterruptibleMask(restore => {
      const known = this.running.get(key)
      if (known !== undefined) return restore(Deferred.await(known))
      const result = Deferred.unsafeMake<A, E>(FiberId.none)
      this.running.set(key, result)
      const computing = compute(work, result, this.scope, () => this.running.delete(key))
      return Effect.zipRight(computing, restore(Deferred.await(result)))
    })
  }
}

/**
 * Shares a result among the callers within some milliseconds of the beginning of its computation, which runs in the
 * context of the first of them. `now` is a clock in milliseconds.
 */
export const sharedFor = <A, E, R>(
  millis: number,
  now: Effect.Effect<number>,
  work: Effect.Effect<A, E, R>
): Effect.Effect<Effect.Effect<A, E, R>, never, Scope.Scope> =>
  Effect.map(Effect.scope, scope => {
    let last: { readonly startedAt: number; readonly result: Deferred.Deferred<A, E> } | undefined
    return Effect.uninterruptibleMask(restore =>
      Effect.flatMap(now, startedAt => {
        if (last !== undefined && startedAt - last.startedAt < millis) return restore(Deferred.await(last.result))
        const result = Deferred.unsafeMake<A, E>(FiberId.none)
        last = { startedAt, result }
        return Effect.zipRight(
          compute(work, result, scope, () => {}),
          restore(Deferred.await(result))
        )
      })
    )
  })
