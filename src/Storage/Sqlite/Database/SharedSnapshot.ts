/** What can keep a snapshot between `hold` and `release`. */
export interface Holder {
  readonly hold: () => void
  /** It never throws, as it is called where nobody would catch it. */
  readonly release: () => void
}

/**
 * One snapshot for the reads of a turn of the event loop: to take and drop the locks of a read transaction costs more
 * than a look-up in it.
 *
 * The first read of a turn has a snapshot of its own, so that one that comes alone pays nothing for others; the second
 * begins one that lasts until the turn is over, so that nothing is held while idle. There is none while the writer has
 * anything to do. As nobody else writes, what is in the store does not change in the life of such a snapshot: each
 * read from it finds what it would find by itself, and no checkpoint of the writer is held up.
 */
export class TurnSnapshot {
  private isBegun = false
  private isHeld = false

  constructor(
    private readonly holder: Holder,
    private isWriting: boolean
  ) {}

  /** To be called before each read. */
  enter(): void {
    if (this.isHeld || this.isWriting) return
    if (this.isBegun) {
      this.holder.hold()
      this.isHeld = true
    } else {
      this.isBegun = true
      setImmediate(this.over)
    }
  }

  /** To be called before the writer is given something to do, and when it has nothing left to do. */
  writing(isWriting: boolean): void {
    this.isWriting = isWriting
    if (isWriting) this.end()
  }

  /** Lets go of the snapshot, if there is one. */
  end(): void {
    if (!this.isHeld) return
    this.isHeld = false
    this.holder.release()
  }

  private readonly over = (): void => {
    this.isBegun = false
    this.end()
  }
}
