import { spawnSync } from "node:child_process"
import { existsSync, readFileSync, renameSync, writeFileSync } from "node:fs"
import { constants } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { Effect, type Scope } from "effect"
import { temporaryDirectory } from "../Storage/SqliteFixture.ts"

/** The calls that can be made to fail, by the names that `shim.c` explains. */
export const calls = [
  "open",
  "create",
  "read",
  "write",
  "flush",
  "truncate",
  "stat",
  "lock",
  "map",
  "close",
  "unlink",
  "rename",
  "mkdir",
  "access",
  "chmod",
  "readlink",
  "list"
] as const

export type Call = (typeof calls)[number]

/** What a call comes to: an error of the system, a wait until the rules change, or a flush that loses what it had to flush. */
export type Outcome = keyof typeof constants.errno | "hang" | "lose"

/** Which calls fail, and how. The first rule that matches and still has calls to skip or to fail decides. */
export interface Rule {
  /** `"*"` is any call. */
  readonly call: Call | "*"
  readonly outcome: Outcome
  /** The file's path below the directory, where `*` stands for anything; all files where it is left out. */
  readonly file?: string
  /** So many calls go through first. */
  readonly skip?: number
  /** So many of the next ones fail; all where it is left out. */
  readonly times?: number
}

const rulesFor = (names: ReadonlyArray<Call>, outcome: Outcome, file = "*"): ReadonlyArray<Rule> =>
  names.map(call => ({ call, outcome, file }))

/** Faults that are often wanted. */
export const faults = {
  /** Nothing can be written and no file made. */
  full: rulesFor(["write", "create", "mkdir", "truncate"], "ENOSPC"),
  /** Flushes fail, and what was written since the last one is gone. */
  flush: rulesFor(["flush"], "lose"),
  /** Flushes and removals of the store's database do not come back until the disk is healed. */
  hang: rulesFor(["flush", "unlink"], "hang", "kv.db*"),
  /** To give up the store's lock takes until the disk is healed. */
  hangingLock: rulesFor(["lock", "close"], "hang", "kv.lock")
} as const

export type Fault = keyof typeof faults

/** A faulty disk under a directory, for processes that are started with `env`. */
export interface Disk {
  readonly env: Readonly<Record<string, string>>
  /** Puts rules in the place of those in force. */
  readonly set: (rules: ReadonlyArray<Rule>) => Effect.Effect<void>
  readonly fail: (fault: Fault) => Effect.Effect<void>
  /** Nothing fails any more. */
  readonly heal: Effect.Effect<void>
  /** All calls on files of the directory so far, each as `call path`, where `isRecording` was asked for. */
  readonly recorded: Effect.Effect<ReadonlyArray<string>>
}

/** Whether there is what it takes to make such a disk. */
export const isPossible = process.platform === "linux" && spawnSync("cc", ["--version"]).status === 0

const source = fileURLToPath(new URL("./shim.c", import.meta.url))

const numberOf = (outcome: Outcome): string | number =>
  outcome === "hang" || outcome === "lose" ? outcome : constants.errno[outcome]

/** Makes a disk under all files of a directory. */
export const make = (directory: string, isRecording = false): Effect.Effect<Disk, never, Scope.Scope> =>
  Effect.map(temporaryDirectory, place => {
    const library = join(place, "shim.so")
    const compiled = spawnSync("cc", ["-shared", "-fPIC", "-o", library, source, "-ldl"], { encoding: "utf8" })
    if (compiled.status !== 0) throw new Error(compiled.stderr)
    const file = join(place, "rules")
    const log = join(place, "log")
    let generation = 0
    const write = (rules: ReadonlyArray<Rule>): void => {
      const lines = rules.map(
        ({ call, file = "*", outcome, skip = 0, times = -1 }) =>
          `${call} ${numberOf(outcome)} ${skip} ${times} ${directory}/${file}`
      )
      // A reader finds the old rules or the new ones, and nothing in between.
      writeFileSync(`${file}.new`, [++generation, ...lines, ""].join("\n"))
      renameSync(`${file}.new`, file)
    }
    write([])
    const set = (rules: ReadonlyArray<Rule>) => Effect.sync(() => write(rules))
    return {
      env: {
        LD_PRELOAD: library,
        FAULT_FILES: `${directory}/`,
        FAULT_RULES: file,
        ...(isRecording ? { FAULT_LOG: log } : {})
      },
      set,
      fail: fault => set(faults[fault]),
      heal: set([]),
      recorded: Effect.sync(() => (existsSync(log) ? readFileSync(log, "utf8").split("\n").slice(0, -1) : []))
    }
  })
