import { describe, expect, it } from "@effect/vitest"
import { Cause, Effect, Either, Exit, Fiber, FastCheck as fc } from "effect"
import * as Direct from "../../src/base/Direct.ts"
import { times } from "../Scale.ts"
import { test } from "../Tests.ts"

/** Runs an effect that must need no fiber. */
const exitOf = <A, E>(effect: Effect.Effect<A, E>): Promise<Exit.Exit<A, E>> =>
  new Promise(resolve => {
    const fork = (): never => {
      throw new Error("a fiber was asked for")
    }
    Direct.run(effect, fork, resolve)
  })

const never = (): void => {}

const leaves = {
  succeed: value => Direct.sync(() => value),
  fail: value => Direct.suspend(() => Exit.fail(`failure ${value}`)),
  die: value => Exit.die(`defect ${value}`),
  throw: value =>
    Direct.suspend(() => {
      throw `thrown ${value}`
    }),
  either: value => Either.right(value),
  left: value => Either.left(`left ${value}`),
  async: value =>
    Direct.async(resume => {
      resume(Exit.succeed(value))
      return never
    }),
  later: value =>
    Direct.async(resume => {
      const pending = setImmediate(() => resume(Direct.sync(() => value)))
      return () => clearImmediate(pending)
    }),
  asyncThrow: value =>
    Direct.async(() => {
      throw `thrown ${value}`
    }),
  fiber: value => Effect.as(Effect.yieldNow(), value)
} satisfies Record<string, (value: number) => Effect.Effect<number, string>>

type Kind = keyof typeof leaves

interface Program {
  readonly kind: Kind
  readonly value: number
  readonly steps: ReadonlyArray<{
    readonly how: "map" | "flatMap" | "catchAll" | "matchEffect" | "uninterruptible"
    readonly next: Program
  }>
}

const kinds = fc.constantFrom(...(Object.keys(leaves) as ReadonlyArray<Kind>))

const hows = fc.constantFrom(...(["map", "flatMap", "catchAll", "matchEffect", "uninterruptible"] as const))

const programs = (depth: number): fc.Arbitrary<Program> =>
  fc.record({
    kind: kinds,
    value: fc.nat(9),
    steps:
      depth === 0 ? fc.constant([]) : fc.array(fc.record({ how: hows, next: programs(depth - 1) }), { maxLength: 3 })
  })

type Combinators = Pick<typeof Direct, "map" | "flatMap" | "catchAll" | "matchEffect" | "uninterruptible">

const build = ({ kind, steps, value }: Program, use: Combinators): Effect.Effect<number, string> =>
  steps.reduce((effect, { how, next }): Effect.Effect<number, string> => {
    const other = (n: number) => use.map(build(next, use), m => n + m)
    if (how === "map") return use.map(effect, n => n + 1)
    if (how === "flatMap") return use.flatMap(effect, other)
    if (how === "uninterruptible") return use.flatMap(use.uninterruptible(effect), other)
    if (how === "catchAll") return use.catchAll(effect, error => other(error.length))
    return use.matchEffect(effect, { onFailure: error => other(error.length), onSuccess: n => Effect.fail(`${n}`) })
  }, leaves[kind](value))

const own: Combinators = {
  map: Effect.map,
  flatMap: Effect.flatMap,
  catchAll: Effect.catchAll,
  matchEffect: Effect.matchEffect,
  uninterruptible: Effect.uninterruptible
}

const shown = (exit: Exit.Exit<number, string>) =>
  Exit.isSuccess(exit) ? exit.value : [...Cause.failures(exit.cause), "defects", ...Cause.defects(exit.cause)]

describe("Direct", () => {
  it.live("gives the results of Effect's own functions, with and without a fiber", () =>
    Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(programs(3), async program => {
          const expected = await Effect.runPromiseExit(build(program, own))
          const effect = build(program, Direct)
          const unforked = await new Promise<Exit.Exit<number, string>>(resolve => {
            Direct.run(effect, Effect.runFork, resolve)
          })
          expect(shown(unforked)).toEqual(shown(expected))
          expect(shown(await Effect.runPromiseExit(effect))).toEqual(shown(expected))
        }),
        { numRuns: times(300) }
      )
    )
  )

  test.effect("forks no fiber for a direct effect, which is computed with each run", function* () {
    let runs = 0
    const counted = Direct.map(
      Direct.catchAll(
        Direct.flatMap(
          Direct.sync(() => ++runs),
          n => (n < 3 ? Either.left("few") : Exit.succeed(n))
        ),
        () =>
          Direct.async<string>(resume => {
            resume(Exit.succeed("caught"))
            return never
          })
      ),
      result => `${result}!`
    )
    expect(runs).toBe(0)
    expect(yield* Effect.promise(() => exitOf(counted))).toEqual(Exit.succeed("caught!"))
    expect(yield* counted).toBe("caught!")
    expect(yield* Effect.promise(() => exitOf(counted))).toEqual(Exit.succeed("3!"))
    expect(yield* counted).toBe("4!")
  })

  it("interrupts an effect that waits for a callback, which then does nothing", () => {
    const results: Array<string> = []
    let resume: ((exit: Exit.Exit<string>) => void) | undefined
    const waiting = Direct.async<string>(callback => {
      resume = callback
      return () => results.push("canceled")
    })
    const interrupt = Direct.run(Direct.map(waiting, String), Effect.runFork, exit =>
      results.push(Exit.isInterrupted(exit) ? "interrupted" : "ended")
    )
    interrupt()
    interrupt()
    resume!(Exit.succeed("late"))
    expect(results).toEqual(["canceled", "interrupted"])
  })

  it("completes once in spite of repeated callbacks, and is not interrupted after that", () => {
    const results: Array<string> = []
    const twice = Direct.async<string>(callback => {
      callback(Exit.succeed("first"))
      callback(Exit.succeed("second"))
      return () => results.push("canceled")
    })
    const interrupt = Direct.run(twice, Effect.runFork, exit =>
      results.push(String(Exit.isSuccess(exit) && exit.value))
    )
    interrupt()
    expect(results).toEqual(["first"])
  })

  it("throws what the observer of its exit throws, and calls it once", () => {
    const results: Array<string> = []
    const now = Direct.async<string>(callback => {
      callback(Exit.succeed("now"))
      return () => results.push("canceled")
    })
    for (const effect of [Exit.succeed("now"), now]) {
      const fails = () =>
        Direct.run(effect, Effect.runFork, exit => {
          results.push(Exit.isSuccess(exit) ? exit.value : "failed")
          throw new Error("of the observer")
        })
      expect(fails).toThrow("of the observer")
    }
    expect(results).toEqual(["now", "now"])
  })

  describe("of two effects", () => {
    const log: Array<string> = []
    const resumes = new Map<string, () => void>()
    const waiting = (name: string) =>
      Direct.async<string>(resume => {
        log.push(`${name} waits`)
        resumes.set(name, () => resume(Exit.succeed(name)))
        return () => log.push(`${name} is canceled`)
      })
    const race = (first: Effect.Effect<string>, second: Effect.Effect<string>) => {
      log.length = 0
      return Direct.run(Direct.raceFirst(first, second), Effect.runFork, exit =>
        log.push(Exit.isSuccess(exit) ? exit.value : Exit.isInterrupted(exit) ? "interrupted" : "failed")
      )
    }

    it("has the exit of the first one, and cancels the other one", () => {
      for (const [first, other] of [["left", "right"] as const, ["right", "left"] as const]) {
        const interrupt = race(waiting("left"), waiting("right"))
        resumes.get(first)!()
        resumes.get(other)!()
        interrupt()
        expect(log).toEqual(["left waits", "right waits", `${other} is canceled`, first])
      }
    })

    it("does not start to wait for one if the other one has ended", () => {
      const now = Direct.async<string>(resume => {
        resume(Exit.succeed("now"))
        return never
      })
      race(now, waiting("right"))
      expect(log).toEqual(["now"])
      race(waiting("left"), now)
      expect(log).toEqual(["left waits", "left is canceled", "now"])
      for (const [left, right] of [
        [Exit.succeed("exit"), waiting("right")] as const,
        [waiting("left"), Exit.succeed("exit")] as const
      ]) {
        race(left, right)
        expect(log).toEqual(["exit"])
      }
      race(Exit.die("defect"), waiting("right"))
      expect(log).toEqual(["failed"])
    })

    it("cancels both if it is interrupted", () => {
      race(waiting("left"), waiting("right"))()
      expect(log).toEqual(["left waits", "right waits", "left is canceled", "right is canceled", "interrupted"])
    })

    test.effect("are as in a fiber if one of them needs a fiber", function* () {
      const slow = Effect.as(Effect.yieldNow(), "slow")
      expect(yield* Direct.raceFirst(waiting("left"), slow)).toBe("slow")
      expect(yield* Direct.raceFirst(slow, waiting("right"))).toBe("slow")
    })

    test.effect("waits for one that must not be interrupted", function* () {
      log.length = 0
      const kept = Direct.uninterruptible(waiting("kept"))
      const racing = yield* Effect.fork(Direct.raceFirst(kept, waiting("right")))
      yield* Effect.repeatN(Effect.yieldNow(), 10)
      resumes.get("right")!()
      yield* Effect.repeatN(Effect.yieldNow(), 10)
      expect(racing.unsafePoll()).toBe(null)
      resumes.get("kept")!()
      expect(yield* Fiber.join(racing)).toBe("right")
      expect(log).toEqual(["kept waits", "right waits"])
    })

    it("cancels one whose registration ends the other one", () => {
      const ending = Direct.async<string>(() => {
        resumes.get("left")!()
        return () => log.push("right is canceled")
      })
      race(waiting("left"), ending)
      expect(log).toEqual(["left waits", "right is canceled", "left"])
    })

    it("cancels the first one if the second one cannot be registered", () => {
      const failing = Direct.async<string>(() => {
        throw new Error("of the registration")
      })
      race(waiting("left"), failing)
      expect(log).toEqual(["left waits", "left is canceled", "failed"])
    })

    it("ends although the other one cannot be canceled", () => {
      const kept = Direct.async<string>(() => () => {
        throw new Error("of the cancellation")
      })
      race(waiting("left"), kept)
      expect(resumes.get("left")).toThrow("of the cancellation")
      expect(log).toEqual(["left waits", "left"])
    })
  })

  test.effect("interrupts the fiber of an effect that was forked", function* () {
    const fibers: Array<Fiber.RuntimeFiber<unknown, unknown>> = []
    const exits: Array<Exit.Exit<unknown, unknown>> = []
    const one = Direct.sync(() => 1)
    const fork = (effect: Effect.Effect<unknown, unknown>) => {
      const fiber = Effect.runFork(effect)
      fibers.push(fiber)
      return fiber
    }
    const interrupt = Direct.run(
      Direct.flatMap(one, () => Effect.never),
      fork,
      exit => exits.push(exit)
    )
    expect(exits).toEqual([])
    interrupt()
    yield* Fiber.await(fibers[0]!)
    expect(exits.map(Exit.isInterrupted)).toEqual([true])
  })

  it("interrupts what follows an uninterruptible part, after that part", () => {
    const results: Array<string> = []
    let resume: ((exit: Exit.Exit<string>) => void) | undefined
    const waiting = Direct.async<string>(callback => {
      resume = callback
      return () => results.push("canceled")
    })
    const part = Direct.map(waiting, value => results.push(value))
    const interrupt = Direct.run(
      Direct.flatMap(Direct.uninterruptible(Direct.flatMap(part, () => part)), () => waiting),
      Effect.runFork,
      exit => results.push(Exit.isInterrupted(exit) ? "interrupted" : "ended")
    )
    interrupt()
    resume!(Exit.succeed("first"))
    resume!(Exit.succeed("second"))
    expect(results).toEqual(["first", "second", "interrupted"])
  })

  test.effect("repeats an effect until it returns false, without a deep stack", function* () {
    let left = 100_000
    const step = Direct.suspend(() =>
      --left % 1000 === 0 ? Effect.as(Effect.yieldNow(), left > 0) : Exit.succeed(true)
    )
    yield* Direct.repeatWhile(step)
    expect(left).toBe(0)
    expect(yield* Effect.exit(Direct.repeatWhile(Exit.fail("failed")))).toEqual(Exit.fail("failed"))
  })

  test.effect("is interrupted in a repetition after what is uninterruptible", function* () {
    const results: Array<string> = []
    let resume = (): void => {}
    const waiting = Direct.async<boolean>(callback => {
      resume = () => callback(Exit.succeed(true))
      return () => results.push("canceled")
    })
    const step = Direct.flatMap(
      Direct.uninterruptible(Direct.map(waiting, () => results.push("stored"))),
      () => waiting
    )
    const fiber = yield* Effect.fork(Direct.repeatWhile(step))
    yield* Effect.yieldNow()
    const interrupting = yield* Effect.fork(Fiber.interrupt(fiber))
    // Its interruption waits for the callback.
    yield* Effect.repeatN(Effect.yieldNow(), 10)
    expect(results).toEqual([])
    resume()
    expect(Exit.isInterrupted(yield* Fiber.join(interrupting))).toBe(true)
    expect(results).toEqual(["stored"])
  })
})
