import { describe, expect, it } from "@effect/vitest"
import { FastCheck as fc } from "effect"
import { blockLength, LogSizes } from "../../../../src/Storage/Sqlite/Kv/LogSizes.ts"

/** A log whose records have these sizes, with the numbers of all records that were looked at. */
const logOf = (sizes: Array<number>) => {
  const looked = { records: 0 }
  const sum = (after: number, upTo: number) => sizes.slice(after, upTo).reduce((total, size) => total + size, 0)
  const log = new LogSizes((after, upTo) => {
    looked.records += upTo - after
    return sum(after, upTo)
  })
  return { log, looked, sum }
}

describe("bounds of the sizes of pages", () => {
  it("are never too low, while the log grows and its start is removed", () => {
    const part = fc.record({
      grow: fc.nat(400),
      trim: fc.nat(300),
      after: fc.nat(),
      limit: fc.integer({ min: 1, max: 1000 })
    })
    fc.assert(
      fc.property(fc.array(part), parts => {
        const sizes: Array<number> = []
        const { log, sum } = logOf(sizes)
        let trimmed = 0
        for (const { after, grow, limit, trim } of parts) {
          for (let count = 0; count < grow; count++) sizes.push(1 + ((sizes.length * 7919) % 1000))
          const end = Math.min(trimmed + trim, sizes.length)
          sizes.fill(0, trimmed, end)
          trimmed = end
          if (sizes.length === 0) continue
          const start = after % sizes.length
          const upTo = Math.min(start + limit, sizes.length)
          expect(log.bound(start, upTo, sizes.length)).toBeGreaterThanOrEqual(sum(start, upTo))
        }
      })
    )
  })

  it("look at each block once, and at the end of the log each time", () => {
    const { log, looked, sum } = logOf(Array.from({ length: 3 * blockLength + 10 }, (_, index) => index))
    const last = 3 * blockLength + 10
    for (let after = 0; after < 2 * blockLength; after++) log.bound(after, after + 100, last)
    expect(looked.records).toBe(3 * blockLength)
    expect(log.bound(last - 20, last, last)).toBe(sum(2 * blockLength, 3 * blockLength) + sum(last - 10, last))
    expect(looked.records).toBe(3 * blockLength + 10)
  })
})
