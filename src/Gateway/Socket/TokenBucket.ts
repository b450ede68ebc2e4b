/** A token bucket, which starts full. Times are monotonic milliseconds. */
export class TokenBucket {
  private tokens: number
  private refusals = 0

  constructor(
    private readonly capacity: number,
    private readonly perSecond: number,
    private at: number
  ) {
    this.tokens = capacity
  }

  /** Takes a token, or returns how many calls were refused since the bucket was last full. */
  take(now: number): { readonly taken: true } | { readonly taken: false; readonly refusals: number } {
    this.tokens = Math.min(this.capacity, this.tokens + ((now - this.at) * this.perSecond) / 1000)
    this.at = now
    if (this.tokens >= this.capacity - 1) this.refusals = 0
    if (this.tokens >= 1) {
      this.tokens--
      return { taken: true }
    }
    return { taken: false, refusals: ++this.refusals }
  }
}
