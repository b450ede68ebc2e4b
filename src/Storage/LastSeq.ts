/** The end of a change log, and who waits for it. */
import { type Effect, Exit } from "effect"
import * as Direct from "../base/Direct.ts"

interface Waiter {
  readonly seq: number
  readonly wake: () => void
}

/** The last `seq` of a log, and callbacks that wait for it to grow. */
export class LastSeq {
  private readonly waiters = new Set<Waiter>()
  private last = 0

  /** Sets the last `seq` and wakes the waiters for it. A lower `seq` belongs to another log, and wakes all waiters. */
  set(lastSeq: number): void {
    if (lastSeq === this.last) return
    const isReset = lastSeq < this.last
    this.last = lastSeq
    for (const waiter of this.waiters) {
      if (!isReset && waiter.seq >= lastSeq) continue
      this.waiters.delete(waiter)
      waiter.wake()
    }
  }

  /** Waits until the last `seq` is greater than `seq`. The effect is direct. */
  awaitPast(seq: number): Effect.Effect<void> {
    return Direct.async(resume => {
      const waiter: Waiter = { seq, wake: () => resume(Exit.void) }
      if (this.last > seq) waiter.wake()
      else this.waiters.add(waiter)
      return () => this.waiters.delete(waiter)
    })
  }
}
