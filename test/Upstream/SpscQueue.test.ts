import { describe, expect, it } from "@effect/vitest"
import { Effect, Exit, Fiber, FastCheck as fc } from "effect"
import { SpscQueue } from "../../src/Upstream/SpscQueue.ts"
import { times } from "../Scale.ts"
import * as Interleaving from "./Interleaving.ts"

/** Offers a value once there is room for it. */
const offer = <A, E>(queue: SpscQueue<A, E>, value: A) => Effect.map(queue.awaitRoom, () => queue.unsafeOffer(value))

describe("A queue of one producer and one consumer", () => {
  it.effect("gives all values that wait, and waits where nothing does", () =>
    Effect.gen(function* () {
      const queue = new SpscQueue<number, string>()
      queue.unsafeOffer(1)
      queue.unsafeOffer(2)
      expect(yield* queue.takeAll).toEqual([[1, 2], false])
      const taking = yield* Effect.fork(queue.takeAll)
      yield* Effect.yieldNow()
      expect(taking.unsafePoll()).toBeNull()
      queue.unsafeOffer(3)
      expect(yield* Fiber.join(taking)).toEqual([[3], false])
    })
  )

  it.effect("is done once, behind what was offered before, and takes nothing after", () =>
    Effect.gen(function* () {
      const failing = new SpscQueue<number, string>()
      failing.unsafeOffer(1)
      failing.unsafeDone(Exit.fail("broken"))
      failing.unsafeDone(Exit.void)
      failing.unsafeOffer(2)
      yield* offer(failing, 3)
      expect(yield* failing.takeAll).toEqual([[1], false])
      expect(yield* Effect.flip(failing.takeAll)).toBe("broken")
      expect(yield* Effect.flip(failing.take)).toBe("broken")
      const ending = new SpscQueue<number, string>()
      const taking = yield* Effect.fork(ending.takeAll)
      yield* Effect.yieldNow()
      ending.unsafeDone(Exit.void)
      expect(yield* Fiber.join(taking)).toEqual([[], true])
      expect(yield* Effect.flip(ending.take)).toMatchObject({ _tag: "NoSuchElementException" })
    })
  )

  it.effect("makes the producer wait for room, until there is some or the end", () =>
    Effect.gen(function* () {
      const queue = new SpscQueue<number, string>(2)
      const giving = yield* Effect.fork(Effect.forEach([1, 2, 3, 4], value => offer(queue, value), { discard: true }))
      yield* Effect.yieldNow()
      expect(giving.unsafePoll()).toBeNull()
      expect(yield* queue.take).toBe(1)
      yield* Effect.yieldNow()
      expect(giving.unsafePoll()).toBeNull()
      queue.unsafeDone(Exit.void)
      yield* Fiber.join(giving)
      expect(yield* queue.takeAll).toEqual([[2, 3], false])
    })
  )

  it.effect("has room for values of a weight", () =>
    Effect.gen(function* () {
      const queue = new SpscQueue<number, string>(10, value => value)
      for (const weight of [1, 8, 100]) yield* offer(queue, weight)
      const giving = yield* Effect.fork(offer(queue, 2))
      for (const weight of [1, 8]) {
        expect(yield* queue.take).toBe(weight)
        yield* Effect.yieldNow()
        expect(giving.unsafePoll()).toBeNull()
      }
      expect(yield* queue.takeAll).toEqual([[100], false])
      yield* Fiber.join(giving)
      expect(yield* queue.takeAll).toEqual([[2], false])
    })
  )

  it.effect("loses nothing where a consumer or a producer is interrupted", () =>
    Effect.gen(function* () {
      const queue = new SpscQueue<number, string>(1)
      const taking = yield* Effect.fork(queue.takeAll)
      yield* Effect.yieldNow()
      // Woken, and interrupted before it runs.
      queue.unsafeOffer(1)
      yield* Fiber.interrupt(taking)
      const giving = yield* Effect.fork(offer(queue, 2))
      yield* Effect.yieldNow()
      yield* Fiber.interrupt(giving)
      expect(yield* queue.take).toBe(1)
      yield* offer(queue, 3)
      expect(yield* queue.takeAll).toEqual([[3], false])
    })
  )

  it.effect("keeps the order, whatever the bound whichever side is faster", () =>
    Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(
          fc.integer({ min: 1, max: 5 }),
          fc.array(fc.nat({ max: 3 }), { maxLength: 40 }),
          fc.array(fc.nat({ max: 3 }), { minLength: 1, maxLength: 10 }),
          async (most, pauses, rests) => {
            const program = Effect.gen(function* () {
              const queue = new SpscQueue<number, never>(most)
              const yields = (times: number) => Effect.repeatN(Effect.yieldNow(), times)
              yield* Effect.fork(
                Effect.forEach(pauses, (pause, index) => Effect.zipRight(yields(pause), offer(queue, index))).pipe(
                  Effect.zipRight(Effect.sync(() => queue.unsafeDone(Exit.void)))
                )
              )
              const taken: Array<number> = []
              for (let turn = 0; ; turn++) {
                yield* yields(rests[turn % rests.length]!)
                const [values, isOver] = yield* queue.takeAll
                expect(values.length).toBeLessThanOrEqual(most)
                taken.push(...values)
                if (isOver) return taken
              }
            })
            expect(await Effect.runPromise(program)).toEqual(pauses.map((_, index) => index))
          }
        ),
        { numRuns: times(100) }
      )
    )
  )

  it.live("never stalls, wherever the producer and the consumer yield", () =>
    Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(
          fc.integer({ min: 1, max: 5 }),
          fc.array(fc.nat({ max: 20 }), { minLength: 1, maxLength: 10 }),
          fc.boolean(),
          Interleaving.interleavings,
          async (most, efforts, oneByOne, interleaving) => {
            const count = 40
            const program = Effect.gen(function* () {
              const queue = new SpscQueue<number, never>(most)
              const effort = (index: number) => Effect.repeatN(Effect.void, efforts[index % efforts.length]!)
              const giving = yield* Effect.fork(
                Effect.forEach(Array.from({ length: count }), (_, index) =>
                  Effect.zipRight(effort(index), offer(queue, index))
                )
              )
              const taken: Array<number> = []
              while (taken.length < count) {
                yield* effort(taken.length + 1)
                taken.push(...(oneByOne ? [yield* queue.take] : (yield* queue.takeAll)[0]))
              }
              yield* Fiber.join(giving)
              return taken
            })
            const expected = Array.from({ length: count }, (_, index) => index)
            expect(await Interleaving.endOf(program, interleaving)).toEqual(Exit.succeed(expected))
          }
        ),
        { numRuns: times(600) }
      )
    )
  )
})
