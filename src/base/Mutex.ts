/** Mutual exclusion of effects. */
import { Effect } from "effect"
import * as Direct from "./Direct.ts"

/** Runs one effect at a time, in the order of the calls. */
export class Mutex {
  private isTaken = false
  /** Those that wait, each until it runs or is interrupted. */
  private readonly waiting: Array<() => void> = []

  /** Runs an effect, which is interrupted only while it waits for its turn. It is direct unless it has to wait. */
  run<A, E, R>(work: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> {
    return Direct.uninterruptible(
      Direct.suspend(() =>
        this.isTaken || this.waiting.length > 0
          ? Effect.flatMap(this.turn, wake => {
              this.leave(wake)
              return this.hold(work)
            })
          : this.hold(work)
      )
    )
  }

  private hold<A, E, R>(work: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> {
    this.isTaken = true
    return Direct.matchExit(work, exit => {
      this.isTaken = false
      this.waiting[0]?.()
      return exit
    })
  }

  private get turn(): Effect.Effect<() => void> {
    return Effect.suspend(() => {
      let wake = (): void => {}
      const woken = Effect.async<() => void>(resume => {
        wake = () => resume(Effect.succeed(wake))
        this.waiting.push(wake)
        // The fiber may have yielded since the mutex was taken.
        if (!this.isTaken && this.waiting.length === 1) wake()
      })
      return Effect.onInterrupt(Effect.interruptible(woken), () =>
        Effect.sync(() => {
          this.leave(wake)
          // It may have been woken already.
          if (!this.isTaken) this.waiting[0]?.()
        })
      )
    })
  }

  private leave(wake: () => void): void {
    const at = this.waiting.indexOf(wake)
    if (at !== -1) this.waiting.splice(at, 1)
  }
}
