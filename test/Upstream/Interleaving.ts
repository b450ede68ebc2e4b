/** Runs programs under random interleavings of their fibers, and detects deadlocks. */
import { Effect, type Exit, FastCheck as fc, Scheduler } from "effect"
import * as FiberScheduler from "../../src/Process/FiberScheduler.ts"

/** How fibers are interleaved. */
export interface Interleaving {
  readonly scheduler: "the service's" | "Effect's"
  /** Operations of a fiber before it yields. Below 10, Effect does nothing but yield. */
  readonly steps: number
}

export const interleavings: fc.Arbitrary<Interleaving> = fc.record({
  scheduler: fc.constantFrom("the service's", "Effect's"),
  steps: fc.integer({ min: 10, max: 80 })
})

const schedulers = {
  "the service's": () => FiberScheduler.make(),
  "Effect's": (): Scheduler.Scheduler => new Scheduler.MixedScheduler(2048)
}

/** Runs a program with its fibers interleaved so. */
export const run = <A, E, R>(
  program: Effect.Effect<A, E, R>,
  { scheduler, steps }: Interleaving,
  change: (scheduler: Scheduler.Scheduler) => Scheduler.Scheduler = scheduler => scheduler
): Effect.Effect<A, E, R> =>
  program.pipe(Effect.withMaxOpsBeforeYield(steps), Effect.withScheduler(change(schedulers[scheduler]())))

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
