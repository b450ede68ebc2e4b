/** The service and the plain client on Bun and Deno, which npm installs in the versions that were tested. */
import { execFile, spawn } from "node:child_process"
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { read } from "./Docs/Page.ts"
import * as Compiled from "./service/Compiled.ts"

const versions = { bun: "1.4.5", deno: "2.9.6" }

type Runtime = keyof typeof versions

const place = mkdtempSync(join(tmpdir(), "causeway-runtimes-"))

/** The arguments of a runtime that runs a program with every permission, and the packages as they are installed. */
const before: Readonly<Record<Runtime, ReadonlyArray<string>>> = {
  bun: [],
  deno: ["run", "--allow-all", "--no-check", "--node-modules-dir=manual"]
}

const programOf = (runtime: Runtime): string => join(place, "node_modules", ".bin", runtime)

/** Starts the service in dev mode, and returns its address and what ends it with its exit code. */
const started = (runtime: Runtime) => {
  const data = mkdtempSync(join(place, "data-"))
  const child = spawn(programOf(runtime), [...before[runtime], Compiled.main(), "dev"], {
    cwd: data,
    env: { PATH: process.env.PATH, HOME: place, PORT: "0" },
    stdio: ["ignore", "pipe", "pipe"]
  })
  let output = ""
  const ended = new Promise<number | null>(resolve => child.once("exit", resolve))
  const base = new Promise<string>((resolve, reject) => {
    const look = (chunk: Buffer) => {
      output += chunk
      const found = /dev mode, at (http:\S+)\n/.exec(output)
      if (found !== null) resolve(found[1]!)
    }
    child.stdout.on("data", look)
    child.stderr.on("data", look)
    child.once("error", reject)
    void ended.then(code => reject(new Error(`${runtime} ended with ${code}: ${output}`)))
  })
  const stop = (signal: NodeJS.Signals) => {
    child.kill(signal)
    return ended
  }
  return { base, stop }
}

beforeAll(async () => {
  // Their packages get the programs by scripts, which npm has to be allowed to run.
  const manifest = { private: true, dependencies: versions, allowScripts: { bun: true, deno: true } }
  mkdirSync(place, { recursive: true })
  writeFileSync(join(place, "package.json"), JSON.stringify(manifest))
  await promisify(execFile)("npm", ["install", "--no-audit", "--no-fund", "--loglevel=error"], { cwd: place })
}, 900_000)

afterAll(() => rmSync(place, { recursive: true, force: true }))

const use = fileURLToPath(new URL("runtimes/use.js", import.meta.url))

describe.each(["bun", "deno"] as const)("on %s", runtime => {
  it("the service keeps entries, sends changes and runs sessions, and the client uses it", async () => {
    const { base, stop } = started(runtime)
    try {
      const args = [...before[runtime], use, Compiled.module("exports/client"), await base]
      const { stdout } = await promisify(execFile)(programOf(runtime), args, { cwd: place, env: { HOME: place } })
      expect(JSON.parse(stdout)).toEqual({
        entry: { list: [1, "é"] },
        conflict: "PreconditionFailed",
        feeds: {
          webSocket: "webSocket",
          serverSentEvents: "serverSentEvents",
          longPolling: "longPolling"
        },
        sessions: { webSocket: "echo: hello", http: "echo: hello" }
      })
      expect(await stop("SIGTERM")).toBe(0)
    } finally {
      await stop("SIGKILL")
    }
  }, 900_000)

  it("is documented with the version that is tested", () => {
    const name = { bun: "Bun", deno: "Deno" }[runtime]
    expect(read("docs/operate/deployment.md")).toContain(
      `${name} ${versions[runtime].split(".").slice(0, 2).join(".")}`
    )
  })
})
