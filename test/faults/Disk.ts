import { spawnSync } from "node:child_process"
import {
  closeSync,
  existsSync,
  mkdtempSync,
  openSync,
  readFileSync,
  readSync,
  renameSync,
  rmSync,
  writeFileSync,
  writeSync
} from "node:fs"
import { constants, tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { Effect, type Scope } from "effect"
import { temporaryDirectory } from "../TemporaryDirectory.ts"

/** Injects failures into another process's system calls on the files of one directory; see `shim.c`. */

/** The calls that can fail, by the names and in the order of `shim.c`. */
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

/** How a call fails: with an error, by hanging until the rules change, or as a flush that loses its data. */
export type Outcome = keyof typeof constants.errno | "hang" | "lose"

/** Which calls fail, and how. The first rule that matches and still has calls to skip or to fail decides. */
export interface Rule {
  /** `"*"` is any call. */
  readonly call: Call | "*"
  readonly outcome: Outcome
  /** The file's path below the directory, with `*` as wildcard. Without it, all files and the directory. */
  readonly file?: string
  /** How many matching calls succeed first. */
  readonly skip?: number
  /** How many fail then; without it, all. */
  readonly times?: number
}

const rulesFor = (names: ReadonlyArray<Call>, outcome: Outcome, file = "*"): ReadonlyArray<Rule> =>
  names.map(call => ({ call, outcome, file }))

/** Common faults. */
export const faults = {
  /** Nothing can be written and no file created. */
  full: rulesFor(["write", "create", "mkdir", "truncate"], "ENOSPC"),
  /** Flushes fail, and what was written since the last one is lost. */
  flush: rulesFor(["flush"], "lose"),
  /** Flushes and removals of the store's database hang until the faults are removed. */
  hang: rulesFor(["flush", "unlink"], "hang", "kv.db*"),
  /** Releasing the store's lock hangs until the faults are removed. */
  hangingLock: rulesFor(["lock", "close"], "hang", "kv.lock")
} as const

export type Fault = keyof typeof faults

/** How many calls of each name there were. */
export type Counts = Readonly<Record<Call, number>>

/** A faulty disk under a directory, for processes that are started with `env`. */
export interface Disk {
  readonly env: Readonly<Record<string, string>>
  /** Replaces the rules. */
  readonly set: (rules: ReadonlyArray<Rule>) => Effect.Effect<void>
  readonly fail: (fault: Fault) => Effect.Effect<void>
  /** Removes all rules. */
  readonly heal: Effect.Effect<void>
  /** Calls that have failed or hung since the rules were last changed. */
  readonly injected: Effect.Effect<number>
  readonly counts: Effect.Effect<Counts>
  /** All calls on files of the directory so far, each as `call path`, where `isRecording` was asked for. */
  readonly recorded: Effect.Effect<ReadonlyArray<string>>
}

/** Whether this machine has what such a disk needs. */
export const isPossible = process.platform === "linux" && spawnSync("cc", ["--version"]).status === 0

const source = fileURLToPath(new URL("./shim.c", import.meta.url))

const numberOf = (outcome: Outcome): string | number =>
  outcome === "hang" || outcome === "lose" ? outcome : constants.errno[outcome]

let compiled: string | undefined

/** The library, compiled once for all tests of a file. */
const compile = (): string => {
  if (compiled !== undefined) return compiled
  const place = mkdtempSync(join(tmpdir(), "causeway-faults-"))
  process.once("exit", () => rmSync(place, { recursive: true, force: true }))
  const library = join(place, "shim.so")
  const result = spawnSync("cc", ["-shared", "-fPIC", "-o", library, source, "-ldl"], { encoding: "utf8" })
  if (result.status !== 0) throw new Error(result.stderr)
  compiled = library
  return library
}

/** Words of the state; the counts follow at 2. */
const words = { generation: 0, injected: 1, seen: 2, all: 32 } as const

/** Makes a disk under `directory`, an absolute path without symbolic links, and all files in it. */
export const make = (directory: string, isRecording = false): Effect.Effect<Disk, never, Scope.Scope> =>
  Effect.gen(function* () {
    const place = yield* temporaryDirectory
    const [rules, log, state] = ["rules", "log", "state"].map(name => join(place, name)) as [string, string, string]
    writeFileSync(rules, "")
    writeFileSync(state, new Uint32Array(words.all))
    const descriptor = yield* Effect.acquireRelease(
      Effect.sync(() => openSync(state, "r+")),
      descriptor => Effect.sync(() => closeSync(descriptor))
    )
    const read = Effect.sync(() => {
      const memory = new Uint32Array(words.all)
      readSync(descriptor, memory, 0, memory.byteLength, 0)
      return memory
    })
    let generation = 0
    const set = (wanted: ReadonlyArray<Rule>) =>
      Effect.sync(() => {
        const lines = wanted.map(
          ({ call, file, outcome, skip = 0, times = -1 }) =>
            `${call} ${numberOf(outcome)} ${skip} ${times} ${directory}${file === undefined ? "*" : `/${file}`}\n`
        )
        writeFileSync(`${rules}.new`, lines.join(""))
        // A reader finds the old rules or the new ones, and nothing in between.
        renameSync(`${rules}.new`, rules)
        writeSync(descriptor, Uint32Array.of(++generation, 0), 0, 8, 0)
      })
    return {
      env: {
        LD_PRELOAD: compile(),
        FAULT_DIRECTORY: directory,
        FAULT_RULES: rules,
        FAULT_STATE: state,
        ...(isRecording ? { FAULT_LOG: log } : {})
      },
      set,
      fail: fault => set(faults[fault]),
      heal: set([]),
      injected: Effect.map(read, memory => memory[words.injected]!),
      counts: Effect.map(
        read,
        memory => Object.fromEntries(calls.map((call, index) => [call, memory[words.seen + index]!])) as Counts
      ),
      recorded: Effect.sync(() => (existsSync(log) ? readFileSync(log, "utf8").split("\n").slice(0, -1) : []))
    }
  })
