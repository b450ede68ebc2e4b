import { Deferred, Effect, Exit, FiberId, type Scope } from "effect"

/** Something to be done in its turn. */
export interface Work<A, B, E, S> {
  /** What it needs first. Those who wait at the same time for the same thing share its failure. */
  readonly ready: Effect.Effect<A, E>
  /**
   * Waits for `before`, which ends once all earlier work is over, and for whatever else. It may be interrupted.
   * `before` fails where earlier work is held up.
   */
  readonly wait: (needed: A, before: Effect.Effect<void, S>) => Effect.Effect<void, E>
  /**
   * Does it, and answers by `done`; there may be something left to do behind the answer. Once begun it goes on to its
   * end, whoever leaves. Where that end is held up, `holdUp` tells why: until then whoever else waits fails with that.
   */
  readonly work: (needed: A, done: Deferred.Deferred<B, E>, holdUp: (reason: S) => void) => Effect.Effect<void, E>
}

/** Work of one session in the order in which it was asked for, one thing at a time. */
export class Order<S> {
  /** Those who wait and the one whose work is under way, which is the first, each with its turn. */
  private readonly queue = new Set<Deferred.Deferred<void, S>>()
  private heldUp: { readonly reason: S } | undefined

  /** @param scope where work goes on without those who asked for it */
  constructor(private readonly scope: Scope.Scope) {}

  /** Has something done in its turn. Whoever leaves before it has begun takes it along, and nobody passes another. */
  pass<A, B, E>({ ready, wait, work }: Work<A, B, E, S>): Effect.Effect<B, E> {
    const begin = (needed: A, done: Deferred.Deferred<B, E>, turn: Deferred.Deferred<void, S>) => {
      let isOver = false
      const holdUp = (reason: S): void => {
        // What is left behind the end of the work holds up nobody.
        if (!isOver) this.holdUp(reason)
      }
      return Effect.forkIn(
        Effect.onExit(Effect.interruptible(Effect.suspend(() => work(needed, done, holdUp))), exit =>
          Effect.suspend(() => {
            isOver = true
            this.heldUp = undefined
            this.leave(turn)
            return Exit.isFailure(exit) ? Deferred.failCause(done, exit.cause) : Deferred.die(done, unanswered)
          })
        ),
        this.scope
      )
    }
    return Effect.acquireUseRelease(
      Effect.sync((): Place<S> => ({ turn: this.join(), isBegun: false })),
      place =>
        Effect.gen(function* () {
          const needed = yield* ready
          yield* wait(needed, Deferred.await(place.turn))
          const done = yield* Deferred.make<B, E>()
          yield* Effect.uninterruptible(
            Effect.map(begin(needed, done, place.turn), () => {
              place.isBegun = true
            })
          )
          return yield* Deferred.await(done)
        }),
      ({ isBegun, turn }) =>
        Effect.sync(() => {
          if (!isBegun) this.leave(turn)
        })
    )
  }

  private join(): Deferred.Deferred<void, S> {
    const turn = Deferred.unsafeMake<void, S>(FiberId.none)
    this.queue.add(turn)
    if (this.heldUp !== undefined) Deferred.unsafeDone(turn, Effect.fail(this.heldUp.reason))
    else if (this.queue.size === 1) Deferred.unsafeDone(turn, Effect.void)
    return turn
  }

  private leave(turn: Deferred.Deferred<void, S>): void {
    this.queue.delete(turn)
    const next = this.queue.values().next()
    // It may have its turn already, or have failed; then this says nothing.
    if (next.done !== true) Deferred.unsafeDone(next.value, Effect.void)
  }

  private holdUp(reason: S): void {
    this.heldUp = { reason }
    // The first is the one that holds the others up, and has had its turn.
    for (const turn of this.queue) Deferred.unsafeDone(turn, Effect.fail(reason))
  }
}

interface Place<S> {
  readonly turn: Deferred.Deferred<void, S>
  isBegun: boolean
}

/** Work that ended without an answer is a bug. */
const unanswered = new Error("Work ended without an answer")
