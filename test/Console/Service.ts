/** The pages as the build makes them, and a service that serves them. */
import { execFile } from "node:child_process"
import { existsSync, mkdirSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { setTimeout } from "node:timers/promises"
import { fileURLToPath, pathToFileURL } from "node:url"
import { promisify } from "node:util"
import { brotliCompressSync } from "node:zlib"
import { Effect } from "effect"
import { inject } from "vitest"
import { htmlOf, type PageName, pages } from "../../scripts/pageSources.ts"
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

/** A page with the head of the real one, and with one small script instead of what the build makes of the sources. */
const writeSmallPage = (name: PageName, page: URL): void => {
  const script = Buffer.from(`export const lines = [${"0, ".repeat(1000)}]`)
  const assets = new URL("assets/", page)
  mkdirSync(assets, { recursive: true })
  writeFileSync(new URL("main-1.js.br", assets), brotliCompressSync(script))
  writeFileSync(new URL("index.html", page), htmlOf(name).replace("./Main.tsx", "./assets/main-1.js"))
}

const names = Object.keys(pages) as ReadonlyArray<PageName>

/**
 * Builds the pages where the compiled service looks for them. Test files that run side by side build them once.
 *
 * @param isWhole whether they do what they are for. Their serving can be tested without, and their build takes as long
 *   as many tests.
 */
export const buildPages = async (isWhole = true): Promise<void> => {
  if (lock()) {
    const directory = fileURLToPath(builtPages())
    if (isWhole) {
      await promisify(execFile)(process.execPath, ["--import", "tsx", "scripts/pages.ts", directory], { cwd: root })
    } else {
      for (const name of names) writeSmallPage(name, new URL(`${name}/`, builtPages()))
    }
  }
  const indexes = names.map(name => new URL(`${name}/index.html`, builtPages()))
  while (!indexes.every(index => existsSync(index))) await setTimeout(100)
}

/** Starts the service in dev mode, which has an agent platform, and waits until it listens. */
export const start = (env: Readonly<Record<string, string>> = {}) =>
  Effect.gen(function* () {
    const server = yield* launch({ DEV_MODE: "true", ...env })
    const [, base = ""] = yield* server.shows(/dev mode, at (\S+)\n/)
    return { ...server, base }
  })
