import { describe, expect, it } from "@effect/vitest"
import { Effect, Fiber, FastCheck as fc } from "effect"
import * as FiberScheduler from "../../src/Process/FiberScheduler.ts"

/** After whatever is a microtask now, and whatever those bring about. */
const settled = Effect.promise(() => new Promise<void>(resolve => setImmediate(resolve)))

describe("the scheduler of fibers", () => {
  it.live("runs tasks later, by priority and then in the order of arrival", () =>
    Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(fc.array(fc.integer({ min: -2, max: 2 }), { maxLength: 30 }), async priorities => {
          const scheduler = FiberScheduler.make()
          const ran: Array<readonly [priority: number, arrival: number]> = []
          priorities.forEach((priority, arrival) => {
            scheduler.scheduleTask(() => ran.push([priority, arrival]), priority)
          })
          expect(ran).toEqual([])
          await Effect.runPromise(settled)
          expect(ran).toEqual(priorities.map((priority, arrival) => [priority, arrival]).sort(([a], [b]) => a! - b!))
        }),
        { numRuns: 50 * Number(process.env.SOAK ?? 1) }
      )
    )
  )

  it.live("runs what a task schedules after all that was there", () =>
    Effect.gen(function* () {
      const scheduler = FiberScheduler.make()
      const ran: Array<string> = []
      scheduler.scheduleTask(() => {
        ran.push("first")
        scheduler.scheduleTask(() => ran.push("urgent, of the first"), -1)
      }, 0)
      scheduler.scheduleTask(() => ran.push("second"), 0)
      yield* settled
      expect(ran).toEqual(["first", "second", "urgent, of the first"])
    })
  )

  it.live("goes on after a task that throws, and reports it", () =>
    Effect.gen(function* () {
      const reported: Array<unknown> = []
      const scheduler = FiberScheduler.make(error => reported.push(error))
      const ran: Array<string> = []
      scheduler.scheduleTask(() => {
        throw "broken"
      }, 0)
      scheduler.scheduleTask(() => ran.push("the same turn"), 0)
      scheduler.scheduleTask(() => ran.push("another priority"), 1)
      yield* settled
      scheduler.scheduleTask(() => ran.push("another turn"), 0)
      yield* settled
      expect(reported).toEqual(["broken"])
      expect(ran).toEqual(["the same turn", "another priority", "another turn"])
    })
  )

  it.live("lets timers and input have their turn beside fibers that never wait", () =>
    Effect.gen(function* () {
      const spinning = yield* Effect.forkDaemon(Effect.forever(Effect.yieldNow()))
      const computing = yield* Effect.forkDaemon(Effect.forever(Effect.void))
      yield* Effect.sleep(1)
      yield* settled
      expect(spinning.unsafePoll()).toBeNull()
      yield* Fiber.interruptAll([spinning, computing])
    }).pipe(Effect.withScheduler(FiberScheduler.make()))
  )

  it.live("runs every fiber to its end", () =>
    Effect.gen(function* () {
      const countdown = (left: number): Effect.Effect<number> =>
        left === 0
          ? Effect.succeed(1)
          : Effect.zipRight(
              Effect.yieldNow(),
              Effect.suspend(() => countdown(left - 1))
            )
      const fibers = yield* Effect.forEach(
        Array.from({ length: 200 }, (_, at) => at),
        at => Effect.fork(countdown(at))
      )
      expect(yield* Effect.map(Fiber.joinAll(fibers), all => all.length)).toBe(200)
    }).pipe(Effect.withScheduler(FiberScheduler.make()))
  )
})
