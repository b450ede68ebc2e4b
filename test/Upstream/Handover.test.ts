import { describe, expect, it } from "@effect/vitest"
import { Effect, Exit, Fiber, FastCheck as fc } from "effect"
import { Handover } from "../../src/Upstream/Handover.ts"
import * as Standstill from "./Standstill.ts"

describe("A handover", () => {
  it.effect("gives all that waits at once, and waits where nothing does", () =>
    Effect.gen(function* () {
      const handover = new Handover<number, string>()
      handover.unsafeGive(1)
      handover.unsafeGive(2)
      expect(yield* handover.takeAll).toEqual([[1, 2], false])
      const taking = yield* Effect.fork(handover.takeAll)
      yield* Effect.yieldNow()
      expect(taking.unsafePoll()).toBeNull()
      handover.unsafeGive(3)
      expect(yield* Fiber.join(taking)).toEqual([[3], false])
    })
  )

  it.effect("ends once, behind what was given before, and takes nothing after", () =>
    Effect.gen(function* () {
      const failing = new Handover<number, string>()
      failing.unsafeGive(1)
      failing.unsafeEnd(Exit.fail("broken"))
      failing.unsafeEnd(Exit.void)
      failing.unsafeGive(2)
      yield* failing.give(3)
      expect(yield* failing.takeAll).toEqual([[1], false])
      expect(yield* Effect.flip(failing.takeAll)).toBe("broken")
      expect(yield* Effect.flip(failing.take)).toBe("broken")
      const ending = new Handover<number, string>()
      const taking = yield* Effect.fork(ending.takeAll)
      yield* Effect.yieldNow()
      ending.unsafeEnd(Exit.void)
      expect(yield* Fiber.join(taking)).toEqual([[], true])
      expect(yield* Effect.flip(ending.take)).toMatchObject({ _tag: "NoSuchElementException" })
    })
  )

  it.effect("makes the giver wait for room, until there is some or the end", () =>
    Effect.gen(function* () {
      const handover = new Handover<number, string>(2)
      const giving = yield* Effect.fork(Effect.forEach([1, 2, 3, 4], value => handover.give(value), { discard: true }))
      yield* Effect.yieldNow()
      expect(giving.unsafePoll()).toBeNull()
      expect(yield* handover.take).toBe(1)
      yield* Effect.yieldNow()
      expect(giving.unsafePoll()).toBeNull()
      handover.unsafeEnd(Exit.void)
      yield* Fiber.join(giving)
      expect(yield* handover.takeAll).toEqual([[2, 3], false])
    })
  )

  it.effect("loses nothing where a taker or a giver is interrupted", () =>
    Effect.gen(function* () {
      const handover = new Handover<number, string>(1)
      const taking = yield* Effect.fork(handover.takeAll)
      yield* Effect.yieldNow()
      // Woken, and interrupted before it runs.
      handover.unsafeGive(1)
      yield* Fiber.interrupt(taking)
      const giving = yield* Effect.fork(handover.give(2))
      yield* Effect.yieldNow()
      yield* Fiber.interrupt(giving)
      expect(yield* handover.take).toBe(1)
      yield* handover.give(3)
      expect(yield* handover.takeAll).toEqual([[3], false])
    })
  )

  it.effect("keeps the order, whatever the bound and whoever is faster", () =>
    Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(
          fc.integer({ min: 1, max: 5 }),
          fc.array(fc.nat({ max: 3 }), { maxLength: 40 }),
          fc.array(fc.nat({ max: 3 }), { minLength: 1, maxLength: 10 }),
          async (most, pauses, rests) => {
            const program = Effect.gen(function* () {
              const handover = new Handover<number, never>(most)
              const yields = (times: number) => Effect.repeatN(Effect.yieldNow(), times)
              yield* Effect.fork(
                Effect.forEach(pauses, (pause, index) => Effect.zipRight(yields(pause), handover.give(index))).pipe(
                  Effect.zipRight(Effect.sync(() => handover.unsafeEnd(Exit.void)))
                )
              )
              const taken: Array<number> = []
              for (let turn = 0; ; turn++) {
                yield* yields(rests[turn % rests.length]!)
                const [values, isOver] = yield* handover.takeAll
                expect(values.length).toBeLessThanOrEqual(most)
                taken.push(...values)
                if (isOver) return taken
              }
            })
            expect(await Effect.runPromise(program)).toEqual(pauses.map((_, index) => index))
          }
        ),
        { numRuns: 100 * Number(process.env.SOAK ?? 1) }
      )
    )
  )

  it.live("never stands still, wherever the giver and the taker let others run", () =>
    Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(
          fc.integer({ min: 1, max: 5 }),
          fc.array(fc.nat({ max: 20 }), { minLength: 1, maxLength: 10 }),
          fc.boolean(),
          Standstill.turns,
          async (most, efforts, oneByOne, turns) => {
            const count = 40
            const program = Effect.gen(function* () {
              const handover = new Handover<number, never>(most)
              const effort = (index: number) => Effect.repeatN(Effect.void, efforts[index % efforts.length]!)
              const giving = yield* Effect.fork(
                Effect.forEach(Array.from({ length: count }), (_, index) =>
                  Effect.zipRight(effort(index), handover.give(index))
                )
              )
              const taken: Array<number> = []
              while (taken.length < count) {
                yield* effort(taken.length + 1)
                taken.push(...(oneByOne ? [yield* handover.take] : (yield* handover.takeAll)[0]))
              }
              yield* Fiber.join(giving)
              return taken
            })
            const expected = Array.from({ length: count }, (_, index) => index)
            expect(await Standstill.endOf(program, turns)).toEqual(Exit.succeed(expected))
          }
        ),
        { numRuns: 600 * Number(process.env.SOAK ?? 1) }
      )
    )
  )
})
