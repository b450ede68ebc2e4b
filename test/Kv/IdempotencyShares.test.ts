import { describe, expect, it } from "@effect/vitest"
import { FastCheck as fc } from "effect"
import * as Shares from "../../src/Kv/IdempotencyShares.ts"

/** The bytes of tenants, the largest first. */
const descending = fc
  .array(fc.integer({ min: 1, max: 1000 }), { minLength: 1, maxLength: 30 })
  .map(all => all.sort((a, b) => b - a))

const sum = (all: ReadonlyArray<number>): number => all.reduce((total, bytes) => total + bytes, 0)

const cutTo = (share: number, all: ReadonlyArray<number>): number => sum(all.map(bytes => Math.min(bytes, share)))

describe("the share of each tenant", () => {
  it("is the greatest with which all together stay within the target", () => {
    fc.assert(
      fc.property(descending, fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }), (all, part) => {
        const total = sum(all)
        const target = Math.floor(part * total)
        const share = Shares.shareOf(all, total, target)
        expect(cutTo(share, all)).toBeLessThanOrEqual(target)
        expect(cutTo(share + 1, all)).toBeGreaterThan(target)
      })
    )
  })

  it("is not below an equal part of the target", () => {
    fc.assert(
      fc.property(descending, fc.nat(1000), (all, target) => {
        fc.pre(target < sum(all))
        expect(Shares.shareOf(all, sum(all), target)).toBeGreaterThanOrEqual(Math.floor(target / all.length))
      })
    )
  })

  it("reads only as many tenants as are above it", () => {
    let taken = 0
    const tenants = function* () {
      for (const bytes of [1000, 900, 10, 9, 8]) {
        taken++
        yield bytes
      }
    }
    expect(Shares.shareOf(tenants(), 1927, 1500)).toBe(736)
    expect(taken).toBe(3)
  })
})

describe("tenants are compared", () => {
  it("whenever the added bytes reach a step, and not in between", () => {
    const limit = 512 * 1000
    const added = { 0: 999, 999: 1000, 1000: 1999, 1999: 2001, 1: 9000 }
    const reached = Object.entries(added).filter(([before, after]) => Shares.isStepReached(limit, +before, after))
    expect(reached.map(([before]) => before)).toEqual(["1", "999", "1999"])
  })

  it("at once, each minute, and after the clock was set back", () => {
    const schedule = new Shares.ComparisonSchedule()
    expect(schedule.isDue(5_000_000)).toBe(true)
    schedule.done(5_000_000)
    const times = [5_059_999, 5_060_000, 4_940_001, 4_940_000]
    expect(times.filter(now => schedule.isDue(now))).toEqual([5_060_000, 4_940_000])
  })

  it("leaving a step below the limit, though not at once if the total is far above it", () => {
    const limit = 512 * 1000
    expect(Shares.targetOf(limit, limit + 300, 300)).toBe(limit - 1000)
    expect(Shares.targetOf(limit, 10 * limit, 300)).toBe(10 * limit - 4600)
  })
})
