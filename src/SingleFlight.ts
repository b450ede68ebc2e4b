/**
 * Computations that callers share: a caller that arrives during one also gets its result. An interrupted caller does
 * not affect the others.
 */
import { Cause, type Clock, Deferred, Effect, Exit, type Fiber, FiberId, Runtime, type Scope } from "effect"
import * as Direct from "./Direct.ts"
import * as Monotonic from "./Monotonic.ts"

/**
 * Computes a result in a fiber of a scope. Its callers always get an exit: if the computation is interrupted, even
 * before it has started, or the scope closes, they are interrupted. `onExit` runs before that; it must not throw.
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
  // The fiber inherits the uninterruptible region; otherwise it could end before it has entered `onExit`.
  return Effect.uninterruptible(Effect.asVoid(Effect.forkIn(computing, scope)))
}

/** Computations by keys: at most one for each key at a time, each in its own fiber. */
export class SingleFlight<K, A, E = never> {
  private readonly running = new Map<K, Deferred.Deferred<A, E>>()

  /** @param scope of the computations, which outlive the callers that started them */
  constructor(private readonly scope: Scope.Scope) {}

  isRunning(key: K): boolean {
    return this.running.has(key)
  }

  /** Joins the running computation of a key, or starts one. */
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
 * Shares a result among the callers within some milliseconds after the start of its computation, which runs in the
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

type Listener<A, E> = (exit: Exit.Exit<A, E>) => void

/** The callers of one computation, each with the time at which it called, in monotonic milliseconds. */
type Listeners<A, E> = Map<Listener<A, E>, number>

/** The texts and limits of direct computations. */
export interface DirectFlightOptions {
  /** The log message if the callback of a caller throws. The other callers get their results. */
  readonly fault: string
  /**
   * How long a computation takes until it fails if it gets no answer, in milliseconds. A caller that has waited for a
   * computation that failed does not wait as long again for the next one, but only until this time after its call.
   */
  readonly limit: number
}

/**
 * Direct computations by keys: at most one for each key at a time. A caller joins the running one, or shares the next
 * one with all callers that arrive before it starts. A computation outlives its callers, so it must end by itself. All
 * callers of a key pass the same work.
 */
export class DirectFlight<K, A, E = never> {
  private readonly running = new Map<K, Listeners<A, E>>()
  private readonly queued = new Map<K, Listeners<A, E>>()
  private readonly fork: <B, E2>(effect: Effect.Effect<B, E2>) => Fiber.RuntimeFiber<B, E2>
  private readonly clock: Clock.Clock

  constructor(
    runtime: Runtime.Runtime<never>,
    private readonly options: DirectFlightOptions
  ) {
    this.fork = Runtime.runFork(runtime)
    this.clock = Runtime.runSync(runtime)(Effect.clock)
  }

  isRunning(key: K): boolean {
    return this.running.has(key)
  }

  /** The result of the running computation, or of a new one. The effect is direct. */
  join(key: K, work: Effect.Effect<A, E>): Effect.Effect<A, E> {
    return Direct.async(resume => this.listen(this.running, key, work, resume))
  }

  /**
   * The result of a computation that starts after the call, so that it sees earlier changes. If the one before has
   * failed and the time limit of the caller ends first, it gets that failure. The effect is direct.
   */
  next(key: K, work: Effect.Effect<A, E>): Effect.Effect<A, E> {
    return Direct.async(resume => this.listen(this.queued, key, work, resume))
  }

  /** Adds a caller to a running or queued computation, or starts one. Returns a function that removes the caller. */
  private listen(
    flights: Map<K, Listeners<A, E>>,
    key: K,
    work: Effect.Effect<A, E>,
    resume: Listener<A, E>
  ): () => void {
    const isIdle = !this.running.has(key)
    const listeners: Listeners<A, E> = (isIdle ? undefined : flights.get(key)) ?? new Map()
    listeners.set(resume, this.now())
    if (isIdle) this.start(key, work, listeners)
    else flights.set(key, listeners)
    return () => listeners.delete(resume)
  }

  /** Starts a computation. `failure` is that of the one before, if it has failed. */
  private start(key: K, work: Effect.Effect<A, E>, listeners: Listeners<A, E>, failure?: Exit.Exit<A, E>): void {
    this.running.set(key, listeners)
    const limiting = failure === undefined ? undefined : this.fork(this.failLate(listeners, failure))
    Direct.run(work, this.fork, exit => {
      limiting?.unsafeInterruptAsFork(FiberId.none)
      const next = this.queued.get(key)
      this.queued.delete(key)
      this.running.delete(key)
      // Before the callers are notified, because they may call again.
      if (next !== undefined && next.size > 0) {
        this.start(key, work, next, Exit.isFailure(exit) ? exit : undefined)
      }
      for (const listener of listeners.keys()) this.notify(listener, exit)
    })
  }

  /** Fails each caller that has waited for the computation before, at its time limit. The callers are in order. */
  private failLate(listeners: Listeners<A, E>, failure: Exit.Exit<A, E>): Effect.Effect<void> {
    return Effect.forEach(
      [...listeners],
      ([listener, calledAt]) =>
        Effect.gen(this, function* () {
          yield* Effect.sleep(Math.max(0, calledAt + this.options.limit - this.now()))
          if (listeners.delete(listener)) this.notify(listener, failure)
        }),
      { discard: true }
    )
  }

  private notify(listener: Listener<A, E>, exit: Exit.Exit<A, E>): void {
    try {
      listener(exit)
    } catch (error) {
      this.fork(Effect.logError(this.options.fault, Cause.die(error)))
    }
  }

  private now(): number {
    return Monotonic.unsafeMillis(this.clock)
  }
}
