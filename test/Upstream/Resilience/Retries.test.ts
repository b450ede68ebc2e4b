import { describe, expect, it } from "@effect/vitest"
import { FastCheck as fc } from "effect"
import * as CallWindow from "../../../src/Upstream/Resilience/CallWindow.ts"
import * as Retries from "../../../src/Upstream/Resilience/Retries.ts"
import { times } from "../../Scale.ts"

const settings = Retries.budgetDefaults
const numRuns = times(300)

const deposits = (budget: Retries.BudgetState, now: number, count: number): Retries.BudgetState => {
  let after = budget
  for (let i = 0; i < count; i++) after = Retries.deposit(after, now, settings)
  return after
}

/** Takes all that there is. */
const drain = (budget: Retries.BudgetState, now: number): readonly [number, Retries.BudgetState] => {
  let [count, after] = [0, budget]
  for (;;) {
    const [granted, next] = Retries.withdraw(after, now, settings)
    if (!granted) return [count, after]
    after = next
    count++
  }
}

describe("a retry budget", () => {
  it("allows three a second over its window where there are hardly any calls", () => {
    expect(drain(CallWindow.empty, 0)[0]).toBe(30)
  })

  it("allows a fifth of the recent calls in addition", () => {
    expect(drain(deposits(CallWindow.empty, 0, 1000), 0)[0]).toBe(230)
  })

  it("forgets calls and retries after ten seconds", () => {
    const [, spent] = drain(deposits(CallWindow.empty, 0, 1000), 0)
    expect(drain(spent, 9_999)[0]).toBe(0)
    expect(drain(spent, 10_000)[0]).toBe(30)
    expect(drain(deposits(spent, 10_000, 100), 10_000)[0]).toBe(50)
  })

  it("never allows more than a fifth of all calls and 30 for each ten seconds begun, and stays small", () => {
    const step = fc.record({ wait: fc.integer({ min: 0, max: 4000 }), calls: fc.nat(200), tries: fc.nat(200) })
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), steps => {
        let [budget, now, calls, retries] = [CallWindow.empty, 0, 0, 0]
        for (const { wait, calls: more, tries } of steps) {
          now += wait
          budget = deposits(budget, now, more)
          calls += more
          for (let i = 0; i < tries; i++) {
            const [granted, after] = Retries.withdraw(budget, now, settings)
            budget = after
            if (granted) retries++
          }
          expect(budget.length).toBeLessThanOrEqual(settings.window.slots)
          expect(retries).toBeLessThanOrEqual(0.2 * calls + 30 * (1 + Math.ceil(now / 9000)))
        }
      }),
      { numRuns }
    )
  })
})
