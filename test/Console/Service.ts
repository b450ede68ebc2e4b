/** The pages as the build makes them, and a service that serves them. */
import { execFile } from "node:child_process"
import { existsSync, mkdirSync } from "node:fs"
import { join } from "node:path"
import { setTimeout } from "node:timers/promises"
import { fileURLToPath, pathToFileURL } from "node:url"
import { promisify } from "node:util"
import { Effect } from "effect"
import { inject } from "vitest"
import { launch } from "../service/Command.ts"

const root = fileURLToPath(new URL("../..", import.meta.url))

/** Where they are. */
export const builtPages = (): URL => pathToFileURL(`${join(inject("compiled"), "dist")}/`)

const lock = (): boolean => {
  try {
    mkdirSync(join(inject("compiled"), "pages-are-built"))
    return true
  } catch {
    return false
  }
}

/** Builds the pages where the compiled service looks for them. Test files that run side by side build them once. */
export const buildPages = async (): Promise<void> => {
  if (lock()) {
    const directory = fileURLToPath(builtPages())
    await promisify(execFile)(process.execPath, ["--import", "tsx", "scripts/pages.ts", directory], { cwd: root })
  }
  const indexes = ["console", "docs"].map(name => new URL(`${name}/index.html`, builtPages()))
  while (!indexes.every(index => existsSync(index))) await setTimeout(100)
}

/** Starts the service in dev mode, which has an agent platform, and waits until it listens. */
export const start = (env: Readonly<Record<string, string>> = {}) =>
  Effect.gen(function* () {
    const server = yield* launch({ DEV_MODE: "true", ...env })
    const [, base = ""] = yield* server.shows(/dev mode, at (\S+)\n/)
    return { ...server, base }
  })
