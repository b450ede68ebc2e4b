import { describe, expect, it } from "@effect/vitest"
import pg from "pg"
import * as DatabaseError from "../../../../src/Storage/Postgres/Database/DatabaseError.ts"

const { isConflict, isOfContent, isOutcomeUnknown, isOverLimit, isStatementLost, notSent, ofAnswer } = DatabaseError

const reported = (sqlState: string) => {
  const error = new pg.DatabaseError("message", 7, "error")
  error.code = sqlState
  return ofAnswer(error)
}

describe("what is known of a statement that failed", () => {
  it("is nothing where the system reports an error, however much its code looks like one of the database", () => {
    for (const code of ["EPIPE", "EPERM", "ECONNRESET"]) {
      const failure = ofAnswer(Object.assign(new Error("write failed"), { code }))
      expect(isOutcomeUnknown(failure)).toBe(true)
      expect(isOfContent(failure)).toBe(false)
      expect(failure.reason).toBe(`write failed (${code})`)
    }
  })

  it("is that nothing happened where it was not sent, whatever kept it back", () => {
    expect(isOutcomeUnknown(notSent(Object.assign(new Error("refused"), { code: "ECONNREFUSED" })))).toBe(false)
    expect(isConflict(notSent(reported("40001")))).toBe(false)
  })

  it("is that there are too many connections, also in the words of PgBouncer", () => {
    const refusals = [
      ["53300", "sorry, too many clients already"],
      ["08P01", "no more connections allowed (max_client_conn)"],
      ["08P01", "client connections exceeded (max_db_client_connections)"],
      ["08P01", "unsupported startup parameter: options"]
    ].map(([code, message]) => isOverLimit(Object.assign(new Error(message), { code })))
    expect(refusals).toEqual([true, true, true, false])
  })

  it("is what the database reports", () => {
    const meanings = { isConflict, isOfContent, isOutcomeUnknown, isStatementLost }
    const meaningOf = (sqlState: string) =>
      Object.entries(meanings).flatMap(([name, means]) => (means(reported(sqlState)) ? [name] : []))
    for (const [meaning, ...sqlStates] of [
      ["isConflict", "40001", "40P01"],
      ["isOfContent", "22001"],
      ["isStatementLost", "26000", "42P05"],
      ["isOutcomeUnknown", "40003", "08006", "57P01", "58030"]
    ]) {
      for (const sqlState of sqlStates) expect(meaningOf(sqlState)).toEqual([meaning])
    }
    expect(meaningOf("XX000")).toEqual([])
  })
})
