/** Numbers that functions of the database and the code must agree on. The texts of the functions have them in full. */

import { describe, expect, it } from "@effect/vitest"
import * as Idempotency from "../../../src/Kv/Idempotency.ts"
import * as Shares from "../../../src/Kv/IdempotencyShares.ts"
import { compareTenants, recallWrites, rememberWrites } from "../../../src/Storage/Postgres/Schema/idempotency.sql.ts"

/** The distinct numbers that follow a text. */
const numbersAfter = (text: string, before: string): ReadonlyArray<number> => [
  ...new Set(
    text
      .split(before)
      .slice(1)
      .map(rest => Number.parseInt(rest, 10))
  )
]

describe("Postgres, functions", () => {
  it("keep the records of writes for as long, and count as many bytes for them, as the other stores do", () => {
    for (const text of [recallWrites, rememberWrites, compareTenants]) {
      expect(numbersAfter(text, "now - ")).toEqual([Idempotency.lifetime])
    }
    for (const text of [rememberWrites, compareTenants]) {
      const bytes = [...text.matchAll(/(\d+) \+ length\(/g)].map(([, number]) => Number(number))
      expect(new Set(bytes)).toEqual(new Set([Idempotency.overheadBytes]))
      expect(numbersAfter(text, "(limit_bytes + ")).toEqual([Shares.steps - 1])
      expect(numbersAfter(text, `(limit_bytes + ${Shares.steps - 1}) / `)).toEqual([Shares.steps])
    }
  })
})
