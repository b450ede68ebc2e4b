/** Resident memory without garbage. */
import { fileURLToPath } from "node:url"
import { Effect } from "effect"
import type { BenchFailed } from "./BenchFailed.ts"
import { residentBytes } from "./Process.ts"

/** Arguments for node, so that a server collects garbage on SIGUSR2. */
export const nodeArgs = [
  "--expose-gc",
  "--require",
  fileURLToPath(new URL("peers/collect.cjs", import.meta.url))
] as const

/** Resident memory after two garbage collections. */
export const settledBytes = (pid: number): Effect.Effect<number, BenchFailed> =>
  Effect.gen(function* () {
    for (let time = 0; time < 2; time++) {
      yield* Effect.sleep("1 second")
      yield* Effect.sync(() => process.kill(pid, "SIGUSR2"))
    }
    yield* Effect.sleep("1 second")
    return yield* residentBytes(pid)
  })
