import { describe, expect, it } from "@effect/vitest"
import { Effect, TestClock } from "effect"
import { summary } from "../../src/CommandLine/Store/MigrateStore.ts"
import { Output } from "../../src/CommandLine/Terminal/Output.ts"
import * as Progress from "../../src/CommandLine/Terminal/Progress.ts"
import { plain } from "../../src/CommandLine/Terminal/Text.ts"
import { test } from "../Tests.ts"

/** Output to a program, and what was written to it. */
const captured = () => {
  const printed: Array<string> = []
  const print = (text: string) => Effect.sync(() => void printed.push(text))
  return { printed, output: { isTerminal: false, cells: () => 80, paint: plain, write: print, note: print } }
}

describe("the progress of a copy", () => {
  it("ends with a summary", () => {
    const tables = [{ table: "entries", rows: 1234, digest: "abc" }]
    expect(summary({ from: "sqlite:a", to: "postgres://b/c", epoch: "e", isRestarted: false, tables })).toMatch(
      /^entries +1,234 rows {2}abc\nCopied sqlite:a to postgres:\/\/b\/c, and verified it\.\n/
    )
  })

  test.scoped("prints no more lines than one can read, and the last of each phase", function* () {
    const { output, printed } = captured()
    const of = ({ rows }: { readonly phase: string; readonly rows: number }) => ({ done: rows, total: 100 })
    const report = yield* Effect.provideService(Progress.reporter("lines", "rows", of), Output, output)
    for (const phase of ["copy", "verify"] as const) {
      for (let rows = 1; rows <= 100; rows++) {
        yield* TestClock.adjust("100 millis")
        yield* report({ phase, rows })
      }
    }
    expect(printed.map(line => line.slice(0, line.indexOf("%") + 1))).toEqual([
      ...["copy: 1 %", "copy: 51 %", "copy: 100 %", "verify: 1 %", "verify: 51 %", "verify: 100 %"]
    ])
    expect(printed[1]).toBe("copy: 51 %  51 rows, 10/s, 00:05 left")
  })
})
