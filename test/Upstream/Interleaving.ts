/** Runs programs under random interleavings of their fibers, and detects deadlocks. */
import { Effect, type Exit, FastCheck as fc, Scheduler } from "effect"

/** How fibers are interleaved. */
export interface Interleaving {
  /** Whether each fiber has its queue of tasks, as in the service, or all share one and do not wait for input. */
  readonly queues: "one for each" | "one for all"
  /** Operations of a fiber before it yields. Below 10, Effect does nothing but yield. */
  readonly steps: number
}

export const interleavings: fc.Arbitrary<Interleaving> = fc.record({
  queues: fc.constantFrom("one for each", "one for all"),
  steps: fc.integer({ min: 10, max: 80 })
})

/** All of them. */
export const allInterleavings: ReadonlyArray<Interleaving> = (["one for each", "one for all"] as const).flatMap(
  queues => Array.from({ length: 71 }, (_, index) => ({ queues, steps: 10 + index }))
)

/** One queue for all fibers, as Effect had it before 3.20. */
const shared = (): Scheduler.Scheduler => {
  const queue: Array<() => void> = []
  return Scheduler.make(task => {
    if (queue.push(task) > 1) return
    void Promise.resolve().then(() => {
      while (queue.length > 0) {
        queue[0]!()
        queue.shift()
      }
    })
  })
}

const schedulers = {
  "one for each": (): Scheduler.Scheduler => new Scheduler.MixedScheduler(2048),
  "one for all": shared
}

/** Runs a program with its fibers interleaved so. */
export const run = <A, E, R>(
  program: Effect.Effect<A, E, R>,
  { queues, steps }: Interleaving,
  change: (scheduler: Scheduler.Scheduler) => Scheduler.Scheduler = scheduler => scheduler
): Effect.Effect<A, E, R> =>
  program.pipe(Effect.withMaxOpsBeforeYield(steps), Effect.withScheduler(change(schedulers[queues]())))

const eventLoopTurn = () => new Promise<void>(resolve => setImmediate(resolve))

/** The exit of a program that waits for no timer and no input; `undefined` if it deadlocks. */
export const endOf = async <A, E>(
  program: Effect.Effect<A, E>,
  interleaving: Interleaving
): Promise<Exit.Exit<A, E> | undefined> => {
  let waiting = 0
  const count = (scheduler: Scheduler.Scheduler): Scheduler.Scheduler => ({
    shouldYield: fiber => scheduler.shouldYield(fiber),
    scheduleTask: (task, priority, fiber) => {
      waiting++
      const counted = () => {
        waiting--
        task()
      }
      scheduler.scheduleTask(counted, priority, fiber)
    }
  })
  const fiber = Effect.runFork(run(program, interleaving, count))
  while (waiting > 0) await eventLoopTurn()
  return fiber.unsafePoll() ?? undefined
}
