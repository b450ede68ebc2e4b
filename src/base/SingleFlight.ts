/**
 * Computations that callers share: a caller that arrives during one also gets its result. An interrupted caller does
 * not affect the others.
 */
import { Cause, Deferred, Effect, type Exit, type Fiber, FiberId, Runtime, type Scope } from "effect"
import * as Direct from "./Direct.ts"

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

/** A computation. It may call `onSent` with a function that returns whether its answer is arriving. */
export type Work<A, E> = (onSent: (isArriving: () => boolean) => void) => Effect.Effect<A, E>

/** A computation that runs or is queued, and its callers. */
class Shared<A, E> {
  readonly listeners = new Set<Listener<A, E>>()
  /** Whether its answer is arriving. */
  isArriving = (): boolean => false
}

/**
 * Direct computations by keys: at most one for each key at a time. A caller joins the running one, or shares the next
 * one with all callers that arrive before it starts. A computation outlives its callers, so it must end by itself. All
 * callers of a key pass the same work.
 */
export class DirectFlight<K, A, E = never> {
  private readonly running = new Map<K, Shared<A, E>>()
  private readonly queued = new Map<K, Shared<A, E>>()
  private readonly fork: <B, E2>(effect: Effect.Effect<B, E2>) => Fiber.RuntimeFiber<B, E2>

  /** @param fault the log message if the callback of a caller throws; the other callers get their results */
  constructor(
    runtime: Runtime.Runtime<never>,
    private readonly fault: string
  ) {
    this.fork = Runtime.runFork(runtime)
  }

  isRunning(key: K): boolean {
    return this.running.has(key)
  }

  /** The result of the running computation, or of a new one. The effect is direct. */
  join(key: K, work: Work<A, E>): Effect.Effect<A, E> {
    return Direct.async(resume => this.listen(key, work, resume, running => running))
  }

  /**
   * The result of a computation that starts after the call, so that it sees earlier changes. `onJoined` is called with a
   * function that returns whether the answer of this computation is arriving. The effect is direct.
   */
  next(key: K, work: Work<A, E>, onJoined?: (isArriving: () => boolean) => void): Effect.Effect<A, E> {
    return Direct.async(resume => this.listen(key, work, resume, () => this.queuedOf(key), onJoined))
  }

  /** Adds a caller to a computation during another one, or starts one. Returns a function that removes the caller. */
  private listen(
    key: K,
    work: Work<A, E>,
    resume: Listener<A, E>,
    during: (running: Shared<A, E>) => Shared<A, E>,
    onJoined?: (isArriving: () => boolean) => void
  ): () => void {
    const running = this.running.get(key)
    const shared = running === undefined ? new Shared<A, E>() : during(running)
    shared.listeners.add(resume)
    onJoined?.(() => shared.isArriving())
    if (running === undefined) this.start(key, work, shared)
    return () => shared.listeners.delete(resume)
  }

  private queuedOf(key: K): Shared<A, E> {
    const known = this.queued.get(key)
    if (known !== undefined) return known
    const queued = new Shared<A, E>()
    this.queued.set(key, queued)
    return queued
  }

  private start(key: K, work: Work<A, E>, shared: Shared<A, E>): void {
    this.running.set(key, shared)
    const onSent = (isArriving: () => boolean): void => {
      shared.isArriving = isArriving
    }
    const computing = Direct.suspend(() => work(onSent))
    Direct.run(computing, this.fork, exit => {
      const next = this.queued.get(key)
      this.queued.delete(key)
      this.running.delete(key)
      // Before the callers are notified, because they may call again.
      if (next !== undefined && next.listeners.size > 0) this.start(key, work, next)
      for (const listener of shared.listeners) this.notify(listener, exit)
    })
  }

  private notify(listener: Listener<A, E>, exit: Exit.Exit<A, E>): void {
    try {
      listener(exit)
    } catch (error) {
      this.fork(Effect.logError(this.fault, Cause.die(error)))
    }
  }
}
