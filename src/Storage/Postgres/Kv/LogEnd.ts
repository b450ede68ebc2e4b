import type { Effect } from "effect"
import { LastSeq } from "../../LastSeq.ts"

/** The last `seq` that this node knows. Reads and notifications of several nodes report it in any order. */
export class LogEnd {
  private readonly end = new LastSeq()
  private known = 0
  private epoch: string | undefined

  /** The last known `seq`. */
  get last(): number {
    return this.known
  }

  /** The log has grown to `lastSeq` or beyond. */
  advance(lastSeq: number): void {
    if (lastSeq <= this.known) return
    this.known = lastSeq
    this.end.set(lastSeq)
  }

  /**
   * A read has found this end. All waiting callers are woken if it has another epoch, or is before the end that was
   * known when the read started: a log only grows, so that this is another log.
   */
  found({ epoch, lastSeq }: { readonly epoch: string; readonly lastSeq: number }, knownBefore: number): void {
    const isOther = (this.epoch !== undefined && epoch !== this.epoch) || lastSeq < knownBefore
    this.epoch = epoch
    if (!isOther) return this.advance(lastSeq)
    this.end.set(0)
    this.known = lastSeq
    this.end.set(lastSeq)
  }

  awaitPast(seq: number): Effect.Effect<void> {
    return this.end.awaitPast(seq)
  }
}
