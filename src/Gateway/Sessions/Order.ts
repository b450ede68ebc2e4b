import { Deferred, Effect, Exit, Fiber, type Scope } from "effect"

/** Something to be done in its turn. */
export interface Work<A, B, E> {
  /** What it needs first. Those who wait at the same time for the same thing share its failure. */
  readonly ready: Effect.Effect<A, E>
  /** Waits for `before`, which ends once all earlier work is over, and for whatever else. It may be interrupted. */
  readonly wait: (needed: A, before: Effect.Effect<void>) => Effect.Effect<void, E>
  /**
   * Does it, and answers by `done`; there may be something left to do behind the answer. Once begun it goes on to its
   * end, whoever leaves.
   */
  readonly work: (needed: A, done: Deferred.Deferred<B, E>) => Effect.Effect<void, E>
}

/** Work of one session in the order in which it was asked for, one thing at a time. */
export class Order {
  private last: Effect.Effect<void> = Effect.void

  /** @param scope where work goes on without those who asked for it */
  constructor(private readonly scope: Scope.Scope) {}

  /** Has something done in its turn. Whoever leaves before it has begun takes it along, and nobody passes another. */
  pass<A, B, E>({ ready, wait, work }: Work<A, B, E>): Effect.Effect<B, E> {
    const begin = (needed: A, done: Deferred.Deferred<B, E>) =>
      Effect.forkIn(
        Effect.onExit(Effect.interruptible(work(needed, done)), exit =>
          Exit.isFailure(exit) ? Deferred.failCause(done, exit.cause) : Deferred.die(done, unanswered)
        ),
        this.scope
      )
    return Effect.acquireUseRelease(
      Effect.sync((): Place => {
        const before = this.last
        const over = Effect.unsafeMakeLatch(false)
        this.last = over.await
        return { before, over, fiber: undefined }
      }),
      place =>
        Effect.gen(function* () {
          const needed = yield* ready
          yield* wait(needed, place.before)
          const done = yield* Deferred.make<B, E>()
          yield* Effect.uninterruptible(
            Effect.map(begin(needed, done), fiber => {
              place.fiber = fiber
            })
          )
          return yield* Deferred.await(done)
        }),
      ({ before, fiber, over }) =>
        Effect.forkIn(
          Effect.zipRight(fiber === undefined ? before : Effect.asVoid(Fiber.await(fiber)), over.open),
          this.scope
        )
    )
  }
}

interface Place {
  readonly before: Effect.Effect<void>
  readonly over: Effect.Latch
  fiber: Fiber.RuntimeFiber<void, unknown> | undefined
}

/** Work that ended without an answer is a bug. */
const unanswered = new Error("Work ended without an answer")
