import { type Effect, Exit } from "effect"
import * as Direct from "../Direct.ts"

interface Waiter {
  readonly seq: number
  readonly wake: () => void
}

/** The last `seq` of a log, and callbacks for those who wait for it to grow. */
export class LastSeq {
  private readonly waiters = new Set<Waiter>()
  private last = 0

  /** Sets the last `seq` and wakes those who wait for it. A lower one is that of another log, and wakes everybody. */
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
