/** Lets system calls of another process on the files under one directory fail; see `systemcalls.c`. */
import { spawnSync } from "node:child_process"
import { closeSync, openSync, readSync, writeFileSync, writeSync } from "node:fs"
import { constants } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { Effect, type Scope } from "effect"
import { temporaryDirectory } from "../Storage/SqliteFixture.ts"

/** Kinds of calls, in the order of `systemcalls.c`. */
export const kinds = [
  "open",
  "stat",
  "access",
  "read",
  "write",
  "sync",
  "truncate",
  "lock",
  "map",
  "unlink",
  "mkdir",
  "chmod",
  "readlink",
  "opendir"
] as const

/** A kind of call; `lock` stands for the locking commands of fcntl. */
export type Kind = (typeof kinds)[number]

/** What a call ends with; one that hangs does so until the disk is sound again. */
export type Outcome = "EIO" | "EACCES" | "ENOSPC" | "ESTALE" | "hang"

const ofPaths: ReadonlyArray<Outcome> = ["EIO", "EACCES", "ESTALE", "hang"]

/** What each kind of call may end with, as its manual page has it, and what network file systems add to that. */
export const outcomes: Readonly<Record<Kind, ReadonlyArray<Outcome>>> = {
  open: [...ofPaths, "ENOSPC"],
  stat: ofPaths,
  access: ofPaths,
  read: ["EIO", "ESTALE", "hang"],
  write: ["EIO", "ENOSPC", "ESTALE", "hang"],
  sync: ["EIO", "ENOSPC", "hang"],
  truncate: ["EIO", "ENOSPC", "hang"],
  lock: ["EIO", "ESTALE", "hang"],
  map: ["EACCES"],
  unlink: ofPaths,
  mkdir: [...ofPaths, "ENOSPC"],
  chmod: ["EIO", "EACCES", "ESTALE"],
  readlink: ofPaths,
  opendir: ofPaths
}

/** Which calls fail and how. */
export interface Fault {
  readonly kind: Kind
  /** How many calls of the kind succeed first. */
  readonly skip: number
  /** How many fail then; `Infinity` for all until the disk is sound again. */
  readonly count: number
  readonly outcome: Outcome
}

/** How many calls of each kind there were. */
export type Counts = Readonly<Record<Kind, number>>

/** A disk under a directory, for processes that are started with `env`. */
export interface Disk {
  readonly env: Readonly<Record<string, string>>
  readonly fail: (fault: Fault) => Effect.Effect<void>
  readonly heal: Effect.Effect<void>
  /** Calls that failed or hung since the last `fail`. */
  readonly injected: Effect.Effect<number>
  readonly counts: Effect.Effect<Counts>
}

const source = fileURLToPath(new URL("./systemcalls.c", import.meta.url))

/** Words of the plan; the counts follow at 8. */
const words = { kinds: 0, skip: 1, count: 2, error: 3, injected: 4, hanging: 5, seen: 8, all: 32 } as const

/** Makes a disk under `directory`, an absolute path without symbolic links. */
export const make = (directory: string): Effect.Effect<Disk, never, Scope.Scope> =>
  Effect.gen(function* () {
    const place = yield* temporaryDirectory
    const library = join(place, "systemcalls.so")
    const compiled = spawnSync("cc", ["-shared", "-fPIC", "-o", library, source, "-ldl"], { encoding: "utf8" })
    if (compiled.status !== 0) throw new Error(compiled.stderr)
    const file = join(place, "plan")
    writeFileSync(file, new Uint32Array(words.all))
    const descriptor = yield* Effect.acquireRelease(
      Effect.sync(() => openSync(file, "r+")),
      descriptor => Effect.sync(() => closeSync(descriptor))
    )
    const read = Effect.sync(() => {
      const memory = new Uint32Array(words.all)
      readSync(descriptor, memory, 0, memory.byteLength, 0)
      return memory
    })
    const write = (word: number, values: ReadonlyArray<number>) =>
      writeSync(descriptor, Uint32Array.from(values), 0, values.length * 4, word * 4)
    return {
      env: { LD_PRELOAD: library, FAULT_DIRECTORY: directory, FAULT_PLAN: file },
      fail: ({ count, kind, outcome, skip }) =>
        Effect.sync(() => {
          const error = outcome === "hang" ? 0 : (constants.errno as Readonly<Record<string, number>>)[outcome]!
          write(words.skip, [skip, Number.isFinite(count) ? count : 0xffff_ffff, error, 0])
          // The bits of the kinds put the rest into force.
          write(words.kinds, [1 << kinds.indexOf(kind)])
        }),
      heal: Effect.sync(() => write(words.kinds, [0])),
      injected: Effect.map(read, memory => memory[words.injected]!),
      counts: Effect.map(
        read,
        memory => Object.fromEntries(kinds.map((kind, index) => [kind, memory[words.seen + index]!])) as Counts
      )
    }
  })
