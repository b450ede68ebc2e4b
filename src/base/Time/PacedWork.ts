/** Work that is done in parts by several turns of the event loop. */
import { Effect } from "effect"

interface Waiting {
  readonly bytes: number
  readonly work: () => void
}

/**
 * Work that takes long in proportion to its bytes. Each iteration of the event loop does some of it, in order, so that
 * other work runs in between.
 */
export class PacedWork {
  private readonly waiting: Array<Waiting> = []
  /** Bytes of the work that was done in this iteration. */
  private done = 0
  private isScheduled = false

  /** @param bytes that are done in one iteration, unless a single piece of work has more */
  constructor(private readonly bytes: number) {}

  /** Does work: at once if this iteration has room for its bytes, else after the work that waits. */
  run(bytes: number, work: () => void): void {
    if (this.waiting.length > 0 || (this.done > 0 && this.done + bytes > this.bytes)) {
      this.waiting.push({ bytes, work })
      return
    }
    this.done += bytes
    if (!this.isScheduled) {
      this.isScheduled = true
      setImmediate(this.onIteration)
    }
    work()
  }

  /** Waits until it is the turn of the work that follows. */
  turn(bytes: number): Effect.Effect<void> {
    return Effect.async(resume => this.run(bytes, () => resume(Effect.void)))
  }

  private readonly onIteration = (): void => {
    this.done = 0
    this.isScheduled = this.waiting.length > 0
    // First, so that the queue continues if the work throws.
    if (this.isScheduled) setImmediate(this.onIteration)
    while (this.waiting.length > 0 && (this.done === 0 || this.done + this.waiting[0]!.bytes <= this.bytes)) {
      const { bytes, work } = this.waiting.shift()!
      this.done += bytes
      work()
    }
  }
}
