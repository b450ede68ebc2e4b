/** Pauses between attempts, in milliseconds: each is twice the one before, from the first to the longest. */
export class Backoff {
  private pause: number

  constructor(
    private readonly first: number,
    private readonly longest: number
  ) {
    this.pause = first
  }

  /** The pause after a failed attempt. */
  next(): number {
    const { pause } = this
    this.pause = Math.min(2 * pause, this.longest)
    return pause
  }

  /** To be called after an attempt that succeeded. */
  reset(): void {
    this.pause = this.first
  }
}
