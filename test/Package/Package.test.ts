/**
 * The package as a host installs it: packed, unpacked beside the packages that it depends on, and used by its name.
 */
import { spawn } from "node:child_process"
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { Host, root, run } from "./Host.ts"

const host = new Host("causeway")
const { directory, installed } = host

/**
 * Makes a process tell the ports that it listens at. Where nothing answers requests as soon as it listens, it says so
 * and ends: Node drops such requests without an answer.
 */
const watching = `data:text/javascript,${encodeURIComponent(`
  import { Server } from "node:net"
  const listen = Server.prototype.listen
  Server.prototype.listen = function (...args) {
    this.once("listening", () => setImmediate(() => {
      if (this.listenerCount("request") > 0) return console.log("test listens at " + this.address().port)
      console.error("It listens before it serves")
      process.exit(1)
    }))
    return listen.apply(this, args)
  }
`)}`

/** The names that can be imported. */
const names = () => Object.keys(host.manifest().exports).filter(name => name !== "./package.json")

beforeAll(async () => {
  await host.install(root)
  host.link({ dependencies: { "@types/node": "*" } })
}, 300_000)

afterAll(() => host.remove())

describe("the package", () => {
  it("has no fault that publint knows", async () => {
    expect(await host.faults()).toEqual([])
  })

  it("has types for each way of importing it", () => host.checkTypes(), 120_000)

  it("depends on no package that brings a second Effect or SQLite", () => {
    const { dependencies = {}, peerDependencies = {} } = host.manifest()
    expect(Object.keys(peerDependencies).sort()).toEqual(["@effect/platform", "@effect/platform-node", "effect"])
    expect(Object.keys(dependencies).filter(name => name.startsWith("@effect/"))).toEqual([])
  })

  it("brings the source of each file and a license", () => {
    expect(readFileSync(join(installed, "LICENSE"), "utf8")).toMatch(/^MIT License/)
    const maps = readdirSync(join(installed, "dist"), { recursive: true, encoding: "utf8" }).filter(name =>
      name.endsWith(".map")
    )
    expect(maps.length).toBeGreaterThan(100)
    for (const map of maps) {
      const at = join(installed, "dist", map)
      const { sources, sourcesContent } = JSON.parse(readFileSync(at, "utf8"))
      for (const [index, source] of sources.entries()) {
        const isThere = sourcesContent?.[index] !== undefined || existsSync(join(dirname(at), source))
        expect(isThere, `${map} names ${source}`).toBe(true)
      }
    }
  })

  it("can be imported by each of its names", async () => {
    const imports = names().map(name => `await import("causeway${name.slice(1)}")`)
    await run(process.execPath, ["--input-type=module", "--eval", imports.join("\n")], directory)
  }, 120_000)

  // The second is attw's, by an override: 5.7, the oldest that Effect's own declarations allow.
  it.each(["typescript", "@arethetypeswrong/core/node_modules/typescript"])(
    "has declarations that %s accepts",
    async compiler => {
      const lines = names().map((name, index) => `export * as name${index} from "causeway${name.slice(1)}"`)
      writeFileSync(join(directory, "names.ts"), lines.join("\n"))
      expect(await host.compile(directory, ["names.ts"], { noEmit: true, skipLibCheck: false }, compiler)).toBe("")
    },
    300_000
  )

  it("starts by its command", async () => {
    const command = join(installed, "dist", "main.js")
    expect((await run(process.execPath, [command, "--version"], directory)).trim()).toBe(host.manifest().version)
    expect(await run(process.execPath, [command, "--help"], directory)).toContain("Usage: causeway")
  }, 120_000)
})

describe("docs/embedding.md", () => {
  const page = readFileSync(join(root, "docs", "embedding.md"), "utf8")
  const examples = [...page.matchAll(/```ts\n\/\/ ([\w-]+)\.ts\n(.*?)```/gs)].map(
    ([, name = "", code = ""]) => [name, code] as const
  )
  const folder = join(directory, "examples")
  const launched = /NodeRuntime\.runMain/

  beforeAll(async () => {
    mkdirSync(folder)
    for (const [name, code] of examples) {
      // Any free port.
      writeFileSync(join(folder, `${name}.ts`), `export {}\n${code.replaceAll(/\b808\d\b/g, "0")}`)
    }
    expect(await host.compile(folder, ["*.ts"], { skipLibCheck: true })).toBe("")
  }, 120_000)

  it("has examples of each kind", () => {
    expect(page.match(/```ts\n/g)).toHaveLength(examples.length)
    expect(examples.length).toBeGreaterThan(7)
  })

  it.each(examples.filter(([, code]) => launched.test(code)))(
    "%s listens, and ends at SIGTERM",
    async (name, code) => {
      const data = mkdtempSync(join(directory, "data-"))
      const child = spawn(process.execPath, ["--import", watching, join(folder, `${name}.js`)], { cwd: data })
      let output = ""
      const ports = new Set<string>()
      const ended = new Promise<number | null>(resolve => child.once("exit", resolve))
      const wanted = [...code.matchAll(/\b808\d\b/g)].length
      await new Promise<void>((resolve, reject) => {
        const onData = (chunk: Buffer) => {
          output += chunk
          for (const [, port = ""] of output.matchAll(/test listens at (\d+)/g)) ports.add(port)
          if (ports.size === wanted) resolve()
        }
        child.stdout.on("data", onData)
        child.stderr.on("data", onData)
        child.once("exit", code => reject(new Error(`It ended with ${code}: ${output}`)))
      })
      for (const port of ports) expect((await fetch(`http://127.0.0.1:${port}/`)).status).toBe(404)
      child.kill("SIGTERM")
      expect([await ended, output]).toEqual([expect.toBeOneOf([0, 130, 143]), expect.any(String)])
    },
    60_000
  )

  it.each(examples.filter(([, code]) => !launched.test(code)))("%s runs", async name => {
    await run(process.execPath, [join(folder, `${name}.js`)], folder)
  })
})

/** What `test/HostApp` prints. */
interface Outcome {
  readonly visits: Readonly<Record<"stock" | "edge", object>>
  readonly measured: ReadonlyArray<{
    readonly heap: number
    readonly listeners: number
    readonly resources: ReadonlyArray<string>
  }>
}

const restarts = 20 * Number(process.env.SOAK ?? 1)

/** The median, which one collection of garbage more or less does not change. */
const median = (values: ReadonlyArray<number>): number => [...values].sort((a, b) => a - b)[values.length >> 1]!

describe("an application of a host", () => {
  const app = join(directory, "app")
  let outcome: Outcome

  beforeAll(async () => {
    cpSync(join(root, "test", "HostApp"), app, { recursive: true })
    expect(await host.build(app)).toBe("")
    const main = join(app, "build", "main.js")
    outcome = JSON.parse(await run(process.execPath, ["--expose-gc", main, String(restarts)], app))
  }, 300_000)

  it.each(["stock", "edge"] as const)(
    "on the %s server uses the store, the feed and the gateway as its users",
    kind => {
      expect(outcome.visits[kind]).toEqual({
        // The wrapper's actor is that of the identity, whatever the client says.
        written: expect.objectContaining({ key: "apples", value: 9, version: 1, updatedBy: "shop:anna" }),
        read: expect.objectContaining({ value: 9, updatedBy: "shop:anna" }),
        followed: [expect.objectContaining({ type: "change" })],
        stock: { apples: 9 },
        refused: [403, 403, 401, 404],
        turn: { type: "turn_completed", isOfSession: true },
        sessions: ["shop:gateway"],
        ready: { ok: true },
        metrics: expect.arrayContaining([
          expect.stringMatching(`^http_requests_in_flight\\{shop="${kind}"\\} `),
          expect.stringMatching(/^shop_writes_total/)
        ]),
        spans: expect.arrayContaining(["http.server PUT", "kv.get", "kv.set"])
      })
    }
  )

  it("leaves nothing behind at its end, however often it starts again", () => {
    const { measured } = outcome
    expect(measured).toHaveLength(restarts)
    const [first, last] = [measured[2]!, measured.at(-1)!]
    expect(last.listeners).toBe(first.listeners)
    expect(last.resources).toEqual(first.resources)
    const third = Math.floor(restarts / 3)
    const heaps = measured.map(({ heap }) => heap)
    const grown = median(heaps.slice(-third)) - median(heaps.slice(third, 2 * third))
    expect(grown / third).toBeLessThan(256 * 1024)
  })
})
