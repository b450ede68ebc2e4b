/** Runs of fibers that wait for one another only, by any scheduler: where nobody has anything to do, that is the end. */
import { Effect, type Exit, FastCheck as fc, Scheduler } from "effect"
import * as FiberScheduler from "../../src/Process/FiberScheduler.ts"

/** How fibers take turns. */
export interface Turns {
  readonly scheduler: "the service's" | "Effect's"
  /** After how many steps a fiber lets others run, wherever that is. Fewer than 10 are taken up by Effect's yielding. */
  readonly steps: number
}

export const turns: fc.Arbitrary<Turns> = fc.record({
  scheduler: fc.constantFrom("the service's", "Effect's"),
  steps: fc.integer({ min: 10, max: 80 })
})

const schedulers = {
  "the service's": () => FiberScheduler.make(),
  "Effect's": (): Scheduler.Scheduler => new Scheduler.MixedScheduler(2048)
}

/** Has a program's fibers take turns so. */
export const by = <A, E, R>(
  program: Effect.Effect<A, E, R>,
  { scheduler, steps }: Turns,
  change: (scheduler: Scheduler.Scheduler) => Scheduler.Scheduler = scheduler => scheduler
): Effect.Effect<A, E, R> =>
  program.pipe(Effect.withMaxOpsBeforeYield(steps), Effect.withScheduler(change(schedulers[scheduler]())))

const turnOfTheLoop = () => new Promise<void>(resolve => setImmediate(resolve))

/** The end of a program that waits for no timer and no input; `undefined` where it stands still before it. */
export const endOf = async <A, E>(program: Effect.Effect<A, E>, turns: Turns): Promise<Exit.Exit<A, E> | undefined> => {
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
  const fiber = Effect.runFork(by(program, turns, count))
  while (waiting > 0) await turnOfTheLoop()
  return fiber.unsafePoll() ?? undefined
}
