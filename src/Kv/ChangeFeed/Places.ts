import { Effect, Schema } from "effect"

/** The feed takes no more followers: there are as many as may be, or the service shuts down. */
export class FeedBusy extends Schema.TaggedError<FeedBusy>()("FeedBusy", {
  /** Fit for a client. */
  reason: Schema.String,
  retryAfterSeconds: Schema.Int
}) {
  override get message(): string {
    return this.reason
  }
}

/** The places for followers, of which there is a fixed number. */
export class Places {
  private taken = 0

  constructor(
    private readonly limit: number,
    private readonly isClosing: () => boolean
  ) {}

  /** How many followers there are. */
  get count(): number {
    return this.taken
  }

  /** Fails where a follower would find no place; takes none. */
  readonly check: Effect.Effect<void, FeedBusy> = Effect.suspend(() => {
    if (this.isClosing()) {
      return new FeedBusy({ reason: "The service is shutting down", retryAfterSeconds: 1 })
    }
    return this.taken < this.limit
      ? Effect.void
      : new FeedBusy({ reason: `There are already ${this.limit} followers of the change log`, retryAfterSeconds: 5 })
  })

  /** Takes a place until {@link leave}. */
  readonly enter: Effect.Effect<void, FeedBusy> = Effect.zipRight(
    this.check,
    Effect.sync(() => {
      this.taken++
    })
  )

  /** Gives a place back. */
  leave(): void {
    this.taken--
  }
}
