import type { Effect } from "effect"
import { LastSeq } from "../../LastSeq.ts"

/** The last `seq` that this node knows of, which reads and notifications of several nodes report in any order. */
export class LogEnd {
  private readonly end = new LastSeq()
  private known = 0
  private epoch: string | undefined

  /** The last `seq` that is known. */
  get last(): number {
    return this.known
  }

  /** The log has grown to here, at least. */
  advance(lastSeq: number): void {
    if (lastSeq <= this.known) return
    this.known = lastSeq
    this.end.set(lastSeq)
  }

  /**
   * A read has found this end. Where it is of another epoch, or before what was known when the read began, which a log
   * that only grows has no more, everybody is woken.
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
