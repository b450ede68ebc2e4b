/** Numbers that functions of the database and the code must agree on. The texts of the functions have them in full. */
import { describe, expect, it } from "@effect/vitest"
import * as Idempotency from "../../../src/Kv/Idempotency.ts"
import * as Shares from "../../../src/Kv/IdempotencyShares.ts"
import { recallWrites, rememberWrites } from "../../../src/Storage/Postgres/Kv/idempotency.sql.ts"
import { compareTenants } from "../../../src/Storage/Postgres/Kv/tenant_totals.sql.ts"
import { Op, Result } from "../../../src/Storage/Postgres/SessionEvents/WriteCodes.ts"
import { writeSessions } from "../../../src/Storage/Postgres/SessionEvents/write_sessions.sql.ts"

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

  it("number the operations and outcomes of sessions as their callers do", () => {
    const { append, open, release, renewEpoch } = Op
    expect(writeSessions).toContain(`IF ops[i] = ${append} THEN\n      UPDATE causeway.histories`)
    expect(writeSessions).toContain(`IF NOT FOUND AND ops[i] IN (${open}, ${renewEpoch}) THEN`)
    expect(writeSessions).toContain(`IF ops[i] = ${renewEpoch} THEN\n        UPDATE causeway.histories u SET epoch`)
    expect(writeSessions).toContain(`ELSIF ops[i] = ${Op.configure} THEN`)
    expect(writeSessions).toContain(`IF ops[i] = ${release} THEN\n      UPDATE causeway.histories u SET owner = NULL`)
    const results = [...writeSessions.matchAll(/(?:results\[i\] := |THEN |ELSE |concat\()'\[?(\d)/g)]
    expect(new Set(results.map(([, number]) => Number(number)))).toEqual(
      new Set([Result.stored, Result.outOfStep, Result.elsewhere])
    )
    expect(numbersAfter(writeSessions, "json_build_array(")).toEqual([Result.history])
  })
})
