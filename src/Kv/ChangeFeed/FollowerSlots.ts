import { Effect, Schema } from "effect"

/** The feed takes no more followers: it has as many as it may have, or the service shuts down. */
export class FeedBusy extends Schema.TaggedError<FeedBusy>()("FeedBusy", {
  /** Fit for a client. */
  reason: Schema.String,
  retryAfterSeconds: Schema.Int
}) {
  override get message(): string {
    return this.reason
  }
}

/** Counts followers of all kinds against their limit. */
export class FollowerSlots {
  private taken = 0

  constructor(
    private readonly limit: number,
    private readonly isDraining: () => boolean
  ) {}

  /** How many followers there are. */
  get count(): number {
    return this.taken
  }

  /** Fails where there is no slot for another follower. */
  readonly check: Effect.Effect<void, FeedBusy> = Effect.suspend(() => {
    if (this.isDraining()) {
      return new FeedBusy({ reason: "The service is shutting down", retryAfterSeconds: 1 })
    }
    return this.taken < this.limit
      ? Effect.void
      : new FeedBusy({ reason: `There are already ${this.limit} followers of the change log`, retryAfterSeconds: 5 })
  })

  /** Takes a slot where {@link check} succeeds, until {@link release}. */
  readonly acquire: Effect.Effect<void, FeedBusy> = Effect.zipRight(
    this.check,
    Effect.sync(() => this.take())
  )

  take(): void {
    this.taken++
  }

  release(): void {
    this.taken--
  }
}
