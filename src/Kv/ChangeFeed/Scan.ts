import type { ChangeQuery } from "../ChangeLog.ts"
import type { Page, Position } from "./Page.ts"
import { ReadersByPart } from "./ReadersByPart.ts"

/** Why a wait has ended: the log may have grown, the deadline has passed, or the service drains. */
export type WakeReason = "grown" | "deadline" | "draining"

/** A reader of the log. */
export interface Reader {
  readonly query: ChangeQuery
  /**
   * How far the log was scanned for the reader. It replaces `query.after`, and a wait advances it past changes that the
   * query does not select.
   */
  position: Position
}

/** A reader that waits. */
export interface Waiter {
  readonly reader: Reader
  readonly query: ChangeQuery
  /** In monotonic milliseconds. */
  readonly deadline: number
  readonly resume: (reason: WakeReason) => void
}

/** The end of a log. Only ends of the same epoch can be compared. */
interface End {
  readonly lastSeq: number
  /** `undefined` before the first read of the log. */
  readonly epoch: string | undefined
}

/**
 * A scan of one log, and the readers that wait for what it finds. Positions of readers belong to the log of their scan:
 * a log that was reset or replaced needs another scan.
 */
export class Scan {
  private readonly waiters = new ReadersByPart<Waiter>()
  private readonly epoch: string | undefined
  private seq: number

  /** Starts at the known end of the log. */
  constructor({ epoch, lastSeq }: End) {
    this.epoch = epoch
    this.seq = lastSeq
  }

  /** How far the log was scanned for all waiters. Some may have read further on their own. */
  get lastSeq(): number {
    return this.seq
  }

  get isAwaited(): boolean {
    return this.waiters.size > 0
  }

  /** Whether a later end shows that the log was reset or replaced. */
  isOutdatedBy({ epoch, lastSeq }: End): boolean {
    return epoch !== this.epoch || lastSeq < this.seq
  }

  add(waiter: Waiter): void {
    this.waiters.add(waiter)
  }

  /** Removes a waiter, whose reader continues from the scanned position. Returns whether it was still waiting. */
  remove(waiter: Waiter): boolean {
    if (!this.waiters.delete(waiter)) return false
    const { reader } = waiter
    const { after, epoch } = reader.position
    if (after < this.seq) reader.position = { epoch, after: this.seq }
    return true
  }

  /** Scans an unfiltered page after the position, and wakes the waiters for which it has changes. */
  advance(page: Page): void {
    this.wake("grown", this.selectedBy(page))
    this.seq = page.lastSeq
  }

  wakeAll(reason: WakeReason): void {
    this.wake(reason, this.waiters.all())
  }

  /** Wakes the waiters whose deadline has passed. `now` is in monotonic milliseconds. */
  wakeDue(now: number): void {
    this.wake(
      "deadline",
      this.waiters.all().filter(({ deadline }) => deadline <= now)
    )
  }

  private wake(reason: WakeReason, concerned: ReadonlyArray<Waiter>): void {
    for (const waiter of concerned) if (this.remove(waiter)) waiter.resume(reason)
  }

  private selectedBy(page: Page): ReadonlyArray<Waiter> {
    const found: Array<Waiter> = []
    for (const { lastSeq, readers } of this.waiters.groupsOf(page)) {
      for (const waiter of readers) {
        const { query, reader } = waiter
        const { after } = reader.position
        if (after >= lastSeq) continue
        // The others of the group may wait for other keys.
        if (query.namespace === undefined || page.hasFor(query, after)) found.push(waiter)
      }
    }
    return found
  }
}
