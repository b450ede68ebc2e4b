/** The limit of the number of followers. */
import { Effect, Schema } from "effect"

/** The feed accepts no more followers: the limit is reached, or the service is shutting down. */
export class FeedBusy extends Schema.TaggedError<FeedBusy>()("FeedBusy", {
  /** Suitable for clients. */
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

  /** The current number of followers. */
  get count(): number {
    return this.taken
  }

  /** Fails if no slot is free. */
  readonly check: Effect.Effect<void, FeedBusy> = Effect.suspend(() => {
    if (this.isDraining()) {
      return new FeedBusy({ reason: "The service is shutting down", retryAfterSeconds: 1 })
    }
    return this.taken < this.limit
      ? Effect.void
      : new FeedBusy({ reason: `There are already ${this.limit} followers of the change log`, retryAfterSeconds: 5 })
  })

  /** Takes a slot if {@link check} succeeds. {@link release} returns it. */
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
