/** Waits for changes of mutable state. */
import { Effect, type Option } from "effect"

/** Lets fibers wait for a condition of mutable state. The owner of the state calls `notify` after each change. */
export class Changes {
  private readonly waiters = new Set<() => void>()

  /** `parent` is notified too. */
  constructor(private readonly parent?: Changes) {}

  /** Wake-ups may be spurious. */
  notify(): void {
    for (const waiter of this.waiters) waiter()
    this.parent?.notify()
  }

  /** Waits until `probe`, run at once and after each change, returns a value. What it throws is a defect. */
  until<A>(probe: () => Option.Option<A>): Effect.Effect<A> {
    return Effect.async<A>(resume => {
      const waiter = () => {
        try {
          const found = probe()
          if (found._tag === "None") return
          resume(Effect.succeed(found.value))
        } catch (defect) {
          resume(Effect.die(defect))
        }
        this.waiters.delete(waiter)
      }
      this.waiters.add(waiter)
      waiter()
      return Effect.sync(() => {
        this.waiters.delete(waiter)
      })
    })
  }
}
