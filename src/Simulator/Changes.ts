import { Effect, type Option } from "effect"

/** Lets fibers wait until plain state has become what they wait for. The owner of the state tells of each change. */
export class Changes {
  private readonly waiters = new Set<() => void>()

  /** The changes of a part are those of the whole, too. */
  constructor(private readonly whole?: Changes) {}

  /** Tells that the state may have changed. */
  notify(): void {
    for (const waiter of this.waiters) waiter()
    this.whole?.notify()
  }

  /** Waits until `probe` finds something; it is asked at once and after each change. What it throws is a defect. */
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
