import { spawnSync } from "node:child_process"
import { rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { Effect, type Scope } from "effect"
import { temporaryDirectory } from "../Storage/SqliteFixture.ts"

/** What a disk can be made to do wrong; see `shim.c`. */
export type Fault = "full" | "flush" | "hang"

/** A faulty disk under a directory, for processes that are started with `env`. */
export interface Disk {
  readonly env: Readonly<Record<string, string>>
  readonly fail: (fault: Fault) => Effect.Effect<void>
  readonly heal: (fault: Fault) => Effect.Effect<void>
}

/** Whether there is what it takes to make such a disk. */
export const isPossible = process.platform === "linux" && spawnSync("cc", ["--version"]).status === 0

const source = fileURLToPath(new URL("./shim.c", import.meta.url))

/** Makes a disk under the files of a store whose names begin so: those of the database, unless said otherwise. */
export const make = (directory: string, beginning = "kv.db"): Effect.Effect<Disk, never, Scope.Scope> =>
  Effect.map(temporaryDirectory, switches => {
    const library = join(switches, "shim.so")
    const compiled = spawnSync("cc", ["-shared", "-fPIC", "-o", library, source, "-ldl"], { encoding: "utf8" })
    if (compiled.status !== 0) throw new Error(compiled.stderr)
    return {
      env: { LD_PRELOAD: library, FAULT_FILES: join(directory, beginning), FAULT_SWITCHES: switches },
      fail: fault => Effect.sync(() => writeFileSync(join(switches, fault), "")),
      heal: fault => Effect.sync(() => rmSync(join(switches, fault), { force: true }))
    }
  })
