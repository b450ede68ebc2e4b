import { Cause, Effect, Exit } from "effect"

/** What has been handed over and not yet taken, at least one value unless it is over; and whether it is over. */
export type Taken<A> = readonly [values: ReadonlyArray<A>, isOver: boolean]

/**
 * A queue between one giver and one taker.
 *
 * Effect's Mailbox does the same with sets of those who wait. Sets whose members come and go by the thousand keep what
 * was in them alive, and their tables are much of what there is to collect.
 */
export class Handover<A, E> {
  private values: Array<A> = []
  private end: Exit.Exit<void, E> | undefined
  private wakeTaker: (() => void) | undefined
  private wakeGiver: (() => void) | undefined

  /** @param most values that may wait to be taken */
  constructor(private readonly most: number = Number.POSITIVE_INFINITY) {}

  /** Hands over at once, whatever the bound. After the end nothing is taken any more. */
  unsafeGive(value: A): void {
    if (this.end !== undefined) return
    this.values.push(value)
    this.wakeTaker?.()
  }

  /** Hands over once there is room. Interrupted before that, it has not; after the end it does nothing. */
  give(value: A): Effect.Effect<void> {
    return Effect.map(this.room, () => this.unsafeGive(value))
  }

  /** Waits until there is room, or the end. The giver alone gives: room that was there stays until it does. */
  readonly room: Effect.Effect<void> = Effect.suspend(() =>
    this.hasRoom() ? Effect.void : Effect.zipRight(this.departure, this.room)
  )

  /** Ends it, once: what waits can still be taken; then comes the failure, if it is one. */
  unsafeEnd(exit: Exit.Exit<void, E>): void {
    this.end ??= exit
    this.wakeTaker?.()
    this.wakeGiver?.()
  }

  /** Takes all that waits, or else what comes next. Interrupted while it waits, it has taken nothing. */
  readonly takeAll: Effect.Effect<Taken<A>, E> = Effect.suspend(() => {
    if (this.values.length > 0) {
      const { values } = this
      this.values = []
      this.wakeGiver?.()
      return Effect.succeed<Taken<A>>([values, false])
    }
    if (this.end === undefined) return Effect.zipRight(this.arrival, this.takeAll)
    return Exit.as<void, E, Taken<A>>(this.end, [[], true])
  })

  /** Takes the oldest value, or else the next one. An end that is no failure is a `NoSuchElementException`. */
  readonly take: Effect.Effect<A, E | Cause.NoSuchElementException> = Effect.suspend(() => {
    if (this.values.length > 0) {
      const value = this.values.shift()!
      this.wakeGiver?.()
      return Effect.succeed(value)
    }
    if (this.end === undefined) return Effect.zipRight(this.arrival, this.take)
    return Exit.zipRight(this.end, Exit.fail(new Cause.NoSuchElementException()))
  })

  private hasRoom(): boolean {
    return this.end !== undefined || this.values.length < this.most
  }

  // Whoever is to wait looks once more in the same step: it may have yielded since it looked, and been woken then.
  private readonly arrival = Effect.async<void>(resume => {
    if (this.end !== undefined || this.values.length > 0) return resume(Effect.void)
    this.wakeTaker = () => {
      this.wakeTaker = undefined
      resume(Effect.void)
    }
    return Effect.sync(() => {
      this.wakeTaker = undefined
    })
  })

  private readonly departure = Effect.async<void>(resume => {
    if (this.hasRoom()) return resume(Effect.void)
    this.wakeGiver = () => {
      this.wakeGiver = undefined
      resume(Effect.void)
    }
    return Effect.sync(() => {
      this.wakeGiver = undefined
    })
  })
}
