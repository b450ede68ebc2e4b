import { describe, expect, it } from "@effect/vitest"
import { Effect, TestClock } from "effect"
import * as MigrateStore from "../../src/CommandLine/Store/MigrateStore.ts"
import { Output } from "../../src/CommandLine/Terminal/Output.ts"
import { plain } from "../../src/CommandLine/Terminal/Text.ts"
import { test } from "../Tests.ts"

const progress = {
  phase: "copy",
  table: "changes",
  rows: 250_000,
  totalRows: 1_000_000,
  bytes: 100 * 1024 * 1024
} as const

/** Output to a terminal, or to a program, and what was written to it. */
const captured = (isTerminal: boolean) => {
  const printed: Array<string> = []
  const print = (text: string) => Effect.sync(() => void printed.push(text))
  return { printed, output: { isTerminal, cells: () => 80, paint: plain, write: print, note: print } }
}

describe("the progress of a copy", () => {
  it("shows the pace and the remaining time", () => {
    const pace = MigrateStore.paceOf(progress, 10_000)
    expect(pace).toEqual({ rowsPerSecond: 25_000, bytesPerSecond: 10_485_760, secondsLeft: 30 })
    expect(MigrateStore.line(progress, pace)).toBe(
      "copy: 25 %, 250,000 of 1,000,000 rows, changes, 25,000 rows/s, 10.0 MiB/s, 0:30 left"
    )
    // Nothing is divided by zero.
    const nothing = { ...progress, rows: 0, totalRows: 0, bytes: 0 }
    expect(MigrateStore.line(nothing, MigrateStore.paceOf(nothing, 0))).toBe(
      "copy: 100 %, 0 of 0 rows, changes, 0 rows/s, 0.0 MiB/s, 0:00 left"
    )
  })

  it("draws a bar that is not wider than the terminal", () => {
    const pace = MigrateStore.paceOf(progress, 10_000)
    const wide = MigrateStore.bar(progress, pace, 120)
    expect(wide).toContain("#######-----------------------")
    for (const columns of [0, 10, 40, 80]) {
      expect(MigrateStore.bar(progress, pace, columns).length).toBeLessThanOrEqual(columns)
    }
  })

  it("prints durations with hours where there are some", () => {
    expect([0, 59, 60, 3909].map(MigrateStore.duration)).toEqual(["0:00", "0:59", "1:00", "1:05:09"])
  })

  it.effect.each([
    {
      isRecord: false,
      expected: /^entries +1,234 rows {2}abc\nCopied sqlite:a to postgres:\/\/b\/c, and verified it\.\n/
    },
    { isRecord: true, expected: /^\{"type":"done","from":"sqlite:a",.*\}\n$/ }
  ])("prints the finished copy, as a record: $isRecord", ({ expected, isRecord }) =>
    Effect.gen(function* () {
      const { output, printed } = captured(!isRecord)
      const tables = [{ table: "entries", rows: 1234, digest: "abc" }]
      yield* Effect.provideService(
        Effect.flatMap(MigrateStore.reporter("lines", false), ({ done }) =>
          done({ from: "sqlite:a", to: "postgres://b/c", epoch: "e", isRestarted: false, tables })
        ),
        Output,
        output
      )
      expect(printed).toEqual([expect.stringMatching(expected)])
    })
  )

  test.effect("prints no more lines than one can read, and the last of each phase", function* () {
    const { output, printed } = captured(false)
    const { report } = yield* Effect.provideService(MigrateStore.reporter("lines", false), Output, output)
    for (const phase of ["copy", "verify"] as const) {
      for (let rows = 1; rows <= 100; rows++) {
        yield* TestClock.adjust("100 millis")
        yield* report({ phase, table: "entries", rows, totalRows: 100, bytes: rows })
      }
    }
    expect(printed.map(line => line.slice(0, line.indexOf("%") + 1))).toEqual([
      ...["copy: 1 %", "copy: 51 %", "copy: 100 %", "verify: 1 %", "verify: 51 %", "verify: 100 %"]
    ])
  })
})
