/** Failures to write standard output. */

import { spawnSync } from "node:child_process"
import { mkdtempSync, readdirSync, readFileSync, readlinkSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { assert, describe, expect, it } from "@effect/vitest"
import { Effect, Exit, Fiber, TestClock } from "effect"
import { summary } from "../../src/CommandLine/Store/MigrateStore.ts"
import { Output } from "../../src/CommandLine/Terminal/Output.ts"
import * as Progress from "../../src/CommandLine/Terminal/Progress.ts"
import { plain } from "../../src/CommandLine/Terminal/Text.ts"
import { openHandle } from "../../src/CommandLine/Transfer/OutputFile.ts"
import * as Fifo from "../faults/Fifo.ts"
import { isLong } from "../Scale.ts"
import * as Compiled from "../service/Compiled.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { test } from "../Tests.ts"
import { start } from "./Program.ts"

/** Runs a command with a redirection of the shell. */
const sh = (script: string, file: string) => {
  const words = [script, "sh", process.execPath, Compiled.program("main"), file]
  const { status, stderr } = spawnSync("sh", ["-c", ...words], { encoding: "utf8", env: { PATH: process.env.PATH } })
  return { code: status, stderr }
}

describe("output that cannot be written", () => {
  const cases: ReadonlyArray<readonly [string, string, RegExp]> = [
    ["on a full disk, of a line alone", '"$1" "$2" --version >/dev/full', /^Standard output cannot be written: ENOSPC/],
    ["on a full disk, of help", '"$1" "$2" kv get --help >/dev/full', /^Standard output cannot be written: ENOSPC/],
    // The system accepts the first bytes of the document.
    [
      "in a file with too little room",
      'ulimit -f 8; "$1" "$2" openapi >"$3"',
      /^Standard output cannot be written: EFBIG/
    ],
    ["on a full disk", '"$1" "$2" openapi >/dev/full', /^Standard output cannot be written: ENOSPC/]
  ]
  // The document takes half a second, and the case before it prints it too.
  it.each(isLong ? cases : cases.slice(0, -1))("%s ends with 1 and a message", (_, script, message) => {
    const directory = mkdtempSync(join(tmpdir(), "causeway-output-"))
    const ended = sh(script, join(directory, "file"))
    rmSync(directory, { recursive: true })
    assert.match(ended.stderr, message)
    assert.strictEqual(ended.code, 1)
  })

  it("is written completely to a file", () => {
    const directory = mkdtempSync(join(tmpdir(), "causeway-output-"))
    const file = join(directory, "file")
    assert.deepStrictEqual(sh('"$1" "$2" openapi >>"$3"; "$1" "$2" --version >>"$3"', file), { code: 0, stderr: "" })
    const [document = "", version = ""] = readFileSync(file, "utf8").split("\n")
    rmSync(directory, { recursive: true })
    assert.strictEqual(JSON.parse(document).openapi, "3.0.3")
    assert.match(version, /^\d+\./)
  })
})

describe("An interrupted command", () => {
  test.scopedLive("ends at the first signal, also while a file that it reads does not answer", function* () {
    const { paths } = yield* Fifo.make(1)
    const path = paths[0]!
    const command = yield* start({ args: ["kv", "set", "namespace", "key", "--file", path] })
    yield* Fifo.isRead(command.pid, path)
    yield* command.signal("SIGINT")
    // The signal itself ends the process, so it has no code.
    assert.deepStrictEqual(yield* command.ended, { code: null, stdout: "", stderr: "" })
  })
})

const isOpen = (file: string): boolean =>
  readdirSync("/proc/self/fd").some(descriptor => {
    try {
      return readlinkSync(`/proc/self/fd/${descriptor}`) === file
    } catch {
      return false
    }
  })

describe("openHandle", () => {
  test.scopedLive("a file is closed after the end of the scope", function* () {
    const file = join(yield* temporaryDirectory, "file")
    yield* Effect.scoped(Effect.map(openHandle(file, "wx"), () => assert.isTrue(isOpen(file))))
    yield* Effect.repeat(Effect.sleep("1 millis"), { until: () => !isOpen(file) })
  })

  test.scopedLive("a disk that does not answer delays neither an interruption nor the end of the scope", function* () {
    const [fifo] = (yield* Fifo.make(1)).paths
    const opening = yield* Effect.fork(Effect.scoped(openHandle(fifo!, "r")))
    yield* Effect.yieldNow()
    assert.isTrue(Exit.isInterrupted(yield* Fiber.interrupt(opening)))
  })
})

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
