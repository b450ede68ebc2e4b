/** A queue with a single producer and a single consumer. */
import { Cause, Effect, Exit } from "effect"

/** The values that were waiting (at least one unless the queue is done), and whether it is done. */
export type Taken<A> = readonly [values: ReadonlyArray<A>, isDone: boolean]

/**
 * A queue with a single producer and a single consumer.
 *
 * Effect's Mailbox does the same with sets of waiting fibers. Sets with thousands of changes keep deleted members alive,
 * and their tables are a large part of the garbage.
 */
export class SpscQueue<A, E> {
  private values: Array<A> = []
  private exit: Exit.Exit<void, E> | undefined
  private wakeConsumer: (() => void) | undefined
  private wakeProducer: (() => void) | undefined

  /** The weight of the waiting values. */
  private weight = 0

  /**
   * @param capacity the weight of the waiting values from which on there is no room
   * @param weigh 1 for each value by default
   */
  constructor(
    private readonly capacity: number = Number.POSITIVE_INFINITY,
    private readonly weigh: (value: A) => number = () => 1
  ) {}

  /** Adds a value, even above the capacity. Does nothing after the queue is done. */
  unsafeOffer(value: A): void {
    if (this.exit !== undefined) return
    this.values.push(value)
    this.weight += this.weigh(value)
    this.wakeConsumer?.()
  }

  /** Waits until the queue is below its capacity or done. With a single producer this holds until the next offer. */
  readonly awaitRoom: Effect.Effect<void> = Effect.suspend(() =>
    this.hasRoom() ? Effect.void : Effect.zipRight(this.awaitTake, this.awaitRoom)
  )

  /** Completes the queue, once. Waiting values can still be taken. The failure, if there is one, follows them. */
  unsafeDone(exit: Exit.Exit<void, E>): void {
    this.exit ??= exit
    this.wakeConsumer?.()
    this.wakeProducer?.()
  }

  /** Takes all waiting values, or waits for the next one. If it is interrupted while it waits, it has taken nothing. */
  readonly takeAll: Effect.Effect<Taken<A>, E> = Effect.suspend(() => {
    if (this.values.length > 0) {
      const { values } = this
      this.values = []
      this.weight = 0
      this.wakeProducer?.()
      return Effect.succeed<Taken<A>>([values, false])
    }
    if (this.exit === undefined) return Effect.zipRight(this.awaitOffer, this.takeAll)
    return Exit.as<void, E, Taken<A>>(this.exit, [[], true])
  })

  /** Takes the oldest value, or waits for it. Fails with `NoSuchElementException` after a completion without failure. */
  readonly take: Effect.Effect<A, E | Cause.NoSuchElementException> = Effect.suspend(() => {
    if (this.values.length > 0) {
      const value = this.values.shift()!
      this.weight -= this.weigh(value)
      this.wakeProducer?.()
      return Effect.succeed(value)
    }
    if (this.exit === undefined) return Effect.zipRight(this.awaitOffer, this.take)
    return Exit.zipRight(this.exit, Exit.fail(new Cause.NoSuchElementException()))
  })

  private hasRoom(): boolean {
    return this.exit !== undefined || this.weight < this.capacity
  }

  // The fiber may have yielded since its first check, so both wait only after a second check.
  private readonly awaitOffer = Effect.async<void>(resume => {
    if (this.exit !== undefined || this.values.length > 0) return resume(Effect.void)
    this.wakeConsumer = () => {
      this.wakeConsumer = undefined
      resume(Effect.void)
    }
    return Effect.sync(() => {
      this.wakeConsumer = undefined
    })
  })

  private readonly awaitTake = Effect.async<void>(resume => {
    if (this.hasRoom()) return resume(Effect.void)
    this.wakeProducer = () => {
      this.wakeProducer = undefined
      resume(Effect.void)
    }
    return Effect.sync(() => {
      this.wakeProducer = undefined
    })
  })
}
