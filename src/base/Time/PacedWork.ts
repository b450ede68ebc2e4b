/** Work that is done in parts by several turns of the event loop. */
import { Effect, Exit } from "effect"

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

/** Events of up to this size are handled at once, which takes less than a millisecond. */
const small = 32 * 1024

/** The size of the events that are handled in one iteration of the event loop, unless a single one is larger. */
const atOnce = 256 * 1024

const pace = new PacedWork(atOnce)

/** Whether events of this size together are large. What is done with one holds the event loop for milliseconds. */
export const isLarge = (size: number): boolean => size > small

/**
 * Waits until it is the turn of large events, whose next step then has to follow at once, so that many of them share
 * iterations of the event loop with everything else.
 */
export const turnOf = (size: number): Effect.Effect<void> => (isLarge(size) ? pace.turn(size) : Exit.void)
