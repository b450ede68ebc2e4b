/** The setup of both benchmarks. */
import { execFileSync } from "node:child_process"
import { mkdirSync, mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"
import { fileURLToPath } from "node:url"
import { Clock, Effect, type Scope } from "effect"
import { BenchFailed } from "./BenchFailed.ts"

const root = fileURLToPath(new URL("../..", import.meta.url))

/** The compiled service: the given file, or `dist/main.js`, which is built first. */
export const service = (given: string | undefined): Effect.Effect<string, BenchFailed> =>
  Effect.try({
    try: () => {
      if (given !== undefined) return resolve(given)
      execFileSync("npm", ["run", "--silent", "build"], { cwd: root, stdio: "inherit" })
      return join(root, "dist/main.js")
    },
    catch: () => new BenchFailed({ reason: "the service cannot be built" })
  })

/** The given directory, which is kept, or a temporary one. */
export const directory = (given: string | undefined): Effect.Effect<string, never, Scope.Scope> =>
  given === undefined
    ? Effect.acquireRelease(
        Effect.sync(() => mkdtempSync(join(tmpdir(), "causeway-bench-"))),
        made => Effect.sync(() => rmSync(made, { recursive: true, force: true }))
      )
    : Effect.sync(() => {
        mkdirSync(given, { recursive: true })
        return resolve(given)
      })

/** The date of the run. */
export const today: Effect.Effect<string> = Effect.map(Clock.currentTimeMillis, millis =>
  new Date(millis).toISOString().slice(0, 10)
)
