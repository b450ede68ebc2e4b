/** What keeps a snapshot between `hold` and `release`. */
export interface Holder {
  readonly hold: () => void
  /** It never throws, as it is called where nobody would catch it. */
  readonly release: () => void
}

/**
 * One snapshot for the reads of an iteration of the event loop: to begin and end a read transaction costs more than a
 * look-up in it.
 *
 * The first read of an iteration has a snapshot of its own, so that a single read pays nothing for others. The second
 * begins one that lasts until the iteration ends, so that none is held while the process is idle. There is none while
 * the writer has a request. As nobody else writes, the database does not change while such a snapshot is held: each read
 * from it finds what it would find by itself, and it does not delay a checkpoint.
 */
export class SharedSnapshot {
  private hasRead = false
  private isHeld = false

  constructor(
    private readonly holder: Holder,
    private isWriting: boolean
  ) {}

  /** To be called before each read. */
  enter(): void {
    if (this.isHeld || this.isWriting) return
    if (this.hasRead) {
      this.holder.hold()
      this.isHeld = true
    } else {
      this.hasRead = true
      setImmediate(this.endIteration)
    }
  }

  /** To be called before the writer gets a request, and when it has answered all. */
  writing(isWriting: boolean): void {
    this.isWriting = isWriting
    if (isWriting) this.end()
  }

  /** Releases the snapshot, if there is one. */
  end(): void {
    if (!this.isHeld) return
    this.isHeld = false
    this.holder.release()
  }

  private readonly endIteration = (): void => {
    this.hasRead = false
    this.end()
  }
}
