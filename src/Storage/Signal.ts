import { type Effect, Exit } from "effect"
import * as Direct from "../Direct.ts"

interface Waiter {
  readonly seq: number
  readonly wake: () => void
}

/** Wakes those who wait for the log to grow. It costs a waiter no fiber beside its own. */
export class Signal {
  private readonly waiters = new Set<Waiter>()

  constructor(private last: number) {}

  /** Notes the log's end. One that lies before the last is that of another log, and wakes everybody. */
  raise(lastSeq: number): void {
    if (lastSeq === this.last) return
    const isReset = lastSeq < this.last
    this.last = lastSeq
    for (const waiter of this.waiters) {
      if (!isReset && waiter.seq >= lastSeq) continue
      this.waiters.delete(waiter)
      waiter.wake()
    }
  }

  /** Waits until the log's end is known to lie past `seq`. */
  awaitPast(seq: number): Effect.Effect<void> {
    return Direct.async(resume => {
      const waiter: Waiter = { seq, wake: () => resume(Exit.void) }
      if (this.last > seq) waiter.wake()
      else this.waiters.add(waiter)
      return () => this.waiters.delete(waiter)
    })
  }
}
