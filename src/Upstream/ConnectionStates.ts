import { Effect, PubSub, Stream } from "effect"

/** `closed` is final: the instance has ended, the platform refuses the connection, or the scope has ended. */
export type ConnectionState = "connected" | "reconnecting" | "closed"

/** Number of changes that wait for a slow consumer. It misses the oldest ones first. */
const waitingChanges = 8

/** The state of a connection, which starts as `connected`, and its changes. */
export class ConnectionStates {
  private state: ConnectionState = "connected"
  private readonly isSettled = Effect.unsafeMakeLatch(true)

  private constructor(private readonly changes: PubSub.PubSub<ConnectionState>) {}

  static readonly make: Effect.Effect<ConnectionStates> = Effect.map(
    PubSub.sliding<ConnectionState>(waitingChanges),
    changes => new ConnectionStates(changes)
  )

  get current(): ConnectionState {
    return this.state
  }

  /** Changes the state. Has no effect after `closed`. */
  set(next: ConnectionState): Effect.Effect<void> {
    return Effect.suspend(() => {
      if (this.state === next || this.state === "closed") return Effect.void
      this.state = next
      const gate = next === "reconnecting" ? this.isSettled.close : this.isSettled.open
      return Effect.zipRight(gate, Effect.asVoid(PubSub.publish(this.changes, next)))
    })
  }

  /** Waits while it is `reconnecting`. */
  get settled(): Effect.Effect<void> {
    return this.isSettled.await
  }

  /** The current state and its changes until `closed`. A slow consumer may miss some, but never the last one. */
  get all(): Stream.Stream<ConnectionState> {
    return Stream.unwrapScoped(
      Effect.map(PubSub.subscribe(this.changes), later =>
        Stream.concat(
          Stream.sync(() => this.state),
          Stream.fromQueue(later)
        ).pipe(
          Stream.changes,
          Stream.takeUntil(seen => seen === "closed")
        )
      )
    )
  }
}
