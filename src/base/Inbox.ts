/** What callbacks pass to a consumer that runs as effects: values, or a signal alone. */
import { Cause, type Effect, Exit } from "effect"
import * as Direct from "./Direct.ts"

/** Values that callbacks add for one consumer. Its producer bounds it. */
export class Inbox<A, E> {
  private values: Array<A> = []
  private exit: Exit.Exit<void, E> | undefined
  private wake: (() => void) | undefined

  /** Adds a value. Returns whether it was added: it is not after the end. */
  offer(value: A): boolean {
    if (this.exit !== undefined) return false
    this.values.push(value)
    this.notify()
    return true
  }

  /** Ends it, once. What waits is taken before. */
  end(exit: Exit.Exit<void, E>): void {
    this.exit ??= exit
    this.notify()
  }

  /** Takes the next value. It dies if there is none after an end without a failure. The effect is direct. */
  readonly take: Effect.Effect<A, E> = Direct.suspend(() => {
    const { exit, values } = this
    if (values.length > 0) return Exit.succeed(values.shift()!)
    if (exit === undefined) return Direct.flatMap(this.arrival, () => this.take)
    return Exit.isFailure(exit)
      ? Exit.failCause(exit.cause)
      : Exit.die(new Cause.NoSuchElementException("It has ended"))
  })

  /**
   * Takes all values that wait, or waits for the next one, and returns them and whether it has ended. Values that are
   * added in one turn of the event loop, as by one read of a socket, are taken together. The effect is direct.
   */
  readonly takeAll: Effect.Effect<readonly [values: ReadonlyArray<A>, isDone: boolean], E> = Direct.suspend(() => {
    const { exit, values } = this
    if (values.length > 0) {
      this.values = []
      return Exit.succeed([values, exit !== undefined && Exit.isSuccess(exit)] as const)
    }
    return exit === undefined
      ? Direct.flatMap(this.arrival, () => this.takeAll)
      : Exit.as(exit, [values, true] as const)
  })

  /** The fiber may have yielded since it has found nothing, so that something may have arrived. */
  private readonly arrival: Effect.Effect<void> = Direct.async(resume => {
    if (this.values.length > 0 || this.exit !== undefined) resume(Exit.void)
    else this.wake = () => resume(Exit.void)
    return () => {
      this.wake = undefined
    }
  })

  private notify(): void {
    const { wake } = this
    if (wake === undefined) return
    this.wake = undefined
    queueMicrotask(wake)
  }
}

/** A flag for which one consumer waits. A latch of Effect would need a fiber for each wait. */
export class Signal {
  private isSet = false
  private wake: (() => void) | undefined

  set(): void {
    this.isSet = true
    const { wake } = this
    this.wake = undefined
    wake?.()
  }

  clear(): void {
    this.isSet = false
  }

  /** Waits until it is set. The effect is direct. */
  readonly wait: Effect.Effect<void> = Direct.async(resume => {
    if (this.isSet) resume(Exit.void)
    else this.wake = () => resume(Exit.void)
    return () => {
      this.wake = undefined
    }
  })
}
