/**
 * The package as a host installs it: packed, unpacked with its dependencies, and used by its name.
 */
import { type ChildProcess, spawn } from "node:child_process"
import {
  cpSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { tmpdir } from "node:os"
import { basename, dirname, join, relative } from "node:path"
import { gzipSync } from "node:zlib"
import { build } from "esbuild"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { fencesOf } from "../Docs/Page.ts"
import { times } from "../Scale.ts"
import { Host, root, run } from "./Host.ts"

const host = new Host("causewayd")
const { directory, installed } = host

/**
 * Makes a process print the ports that it listens at. If nothing answers requests as soon as it listens, it prints that
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

/** `.ci/run` has npm install the oldest and the newest peers; otherwise they are those of this repository. */
const peers = process.env.PEERS

beforeAll(async () => {
  if (peers === "lowest" || peers === "newest") return host.installWith(root, peers)
  await host.install(root)
  host.link({ dependencies: { "@types/node": "*" } })
}, 900_000)

afterAll(() => host.remove())

describe("the package", () => {
  it("has no fault that publint knows", async () => {
    expect(await host.faults()).toEqual([])
  })

  it("can be published, as far as npm knows without a registry", async () => {
    const publish = ["publish", "--dry-run", "--offline", "--json", "--silent", host.tarball]
    const manifest = host.manifest()
    const { name, version } = manifest
    // A dry run says nothing of these.
    expect(manifest).not.toHaveProperty("private")
    expect(manifest).toHaveProperty("publishConfig", { access: "public" })
    expect(JSON.parse(await run("npm", publish, directory))).toMatchObject({ [name]: { name, version } })
  }, 120_000)

  it("has types for each way of importing it", () => host.checkTypes(), 900_000)

  it("depends on no package that brings a second Effect or SQLite", () => {
    const { dependencies = {}, peerDependencies = {} } = host.manifest()
    expect(Object.keys(peerDependencies).sort()).toEqual(["@effect/platform", "@effect/platform-node", "effect"])
    expect(Object.keys(dependencies).filter(name => name.startsWith("@effect/"))).toEqual([])
  })

  if (peers !== undefined) {
    it("is installed with the requested peers, and no package has others", () => {
      const copies = readdirSync(join(directory, "node_modules"), { recursive: true, encoding: "utf8" })
      for (const [name, range] of Object.entries(host.manifest().peerDependencies ?? {})) {
        const { version } = JSON.parse(readFileSync(join(directory, "node_modules", name, "package.json"), "utf8"))
        const lowest = range.replace("^", "")
        if (peers === "lowest") expect([name, version]).toEqual([name, lowest])
        else expect(Number(version.split(".")[2])).toBeGreaterThanOrEqual(Number(lowest.split(".")[2]))
        expect(copies.filter(file => file.endsWith(join("node_modules", name, "package.json")))).toEqual([])
      }
    })
  }

  if (peers === "newest") {
    it("takes at most 155 MB of a disk together with all that npm installs", () => {
      const files = readdirSync(join(directory, "node_modules"), { recursive: true, withFileTypes: true })
      const used = files.map(entry => lstatSync(join(entry.parentPath, entry.name)).blocks * 512)
      const megabytes = used.reduce((sum, bytes) => sum + bytes, 0) / 1024 ** 2
      console.log(`An installation has ${megabytes.toFixed(0)} MB`)
      expect(megabytes).toBeLessThan(155)
    })
  }

  it("has a license, what runs, and the pages for users, within its bound", () => {
    expect(readFileSync(join(installed, "LICENSE"), "utf8")).toMatch(/^MIT License/)
    // Where peers conflict, npm puts packages into it that it depends on.
    const parts = readdirSync(installed).filter(name => name !== "node_modules")
    const files = readdirSync(installed, { recursive: true, encoding: "utf8", withFileTypes: true })
      .filter(entry => entry.isFile())
      .map(entry => relative(installed, join(entry.parentPath, entry.name)))
      .filter(file => !file.startsWith("node_modules"))
    expect(parts.sort()).toEqual(["LICENSE", "README.md", "dist", "docs", "package.json"])
    expect(files).toContain(join("docs", "embed", "embedding.md"))
    // Sources and what maps to them, decisions, pictures of pages, and files in a second form.
    const unwanted = /\.(?:map|tsx?|png|gz)$|contribute/
    expect(files.filter(file => unwanted.test(file.replace(/\.d\.ts$/, "")))).toEqual([])
    for (const file of files.filter(file => file.endsWith(".br"))) expect(files).not.toContain(file.slice(0, -3))
    const size = statSync(host.tarball).size / 1e6
    console.log(`The package has ${size.toFixed(2)} MB`)
    expect(size).toBeLessThan(2)
  })

  it("can be imported by each of its names", async () => {
    const imports = names().map(name => `await import("causewayd${name.slice(1)}")`)
    await run(process.execPath, ["--input-type=module", "--eval", imports.join("\n")], directory)
  }, 900_000)

  // The second is attw's, by an override: 5.7, the oldest that Effect's own declarations allow.
  it.each(["typescript", "@arethetypeswrong/core/node_modules/typescript"])(
    "has declarations that %s accepts",
    async compiler => {
      const lines = names().map((name, index) => `export * as name${index} from "causewayd${name.slice(1)}"`)
      writeFileSync(join(directory, "names.ts"), lines.join("\n"))
      expect(await host.compile(directory, ["names.ts"], { noEmit: true, skipLibCheck: false }, compiler)).toBe("")
    }
  )

  it("starts by its command", async () => {
    const command = join(installed, "dist", "main.js")
    expect((await run(process.execPath, [command, "--version"], directory)).trim()).toBe(host.manifest().version)
    expect(await run(process.execPath, [command, "--help"], directory)).toContain("Usage: causeway")
  }, 900_000)
})

describe("by npx, where it is not installed", () => {
  // Not near the installation of the other tests, which npx would find.
  const place = mkdtempSync(join(tmpdir(), "causeway-npx-"))
  const folder = join(place, "empty")
  const cache = join(place, "npm")
  let service: ChildProcess | undefined
  let isEnded = false
  let env: NodeJS.ProcessEnv

  beforeAll(async () => {
    mkdirSync(folder)
    mkdirSync(cache)
    cpSync(host.tarball, join(folder, basename(host.tarball)))
    // What npm has downloaded before, and nothing that npx has installed.
    const downloaded = join((await run("npm", ["config", "get", "cache"], root)).trim(), "_cacache")
    mkdirSync(downloaded, { recursive: true })
    symlinkSync(downloaded, join(cache, "_cacache"))
    // npm sets variables about the package for the scripts that it runs.
    const others = Object.entries(process.env).filter(
      ([name]) => !/^(?:npm_(?:package|lifecycle|command|config_(?:local_)?prefix)|INIT_CWD)/.test(name)
    )
    const path = `${dirname(process.execPath)}:${process.env.PATH}`
    env = { ...Object.fromEntries(others), PATH: path, npm_config_cache: cache, PORT: "0" }
  })

  afterAll(() => {
    if (service?.pid !== undefined && !isEnded) process.kill(-service.pid, "SIGKILL")
    rmSync(place, { recursive: true, force: true })
  })

  it("starts by the command of README.md, in a folder that has nothing but the package", async () => {
    const [command] = fencesOf("README.md").filter(({ code }) => code.startsWith("npx --yes"))
    expect(command?.code).toContain(` ./${basename(host.tarball)} `)
    service = spawn("sh", ["-c", command?.code ?? ""], {
      ...{ cwd: folder, env, detached: true },
      stdio: ["ignore", "pipe", "pipe"]
    })
    const ended = new Promise<void>(resolve => {
      service?.once("close", () => {
        isEnded = true
        resolve()
      })
    })
    let output = ""
    const base = await new Promise<string>((resolve, reject) => {
      const look = (chunk: Buffer) => {
        output += chunk
        const [, base] = /dev mode, at (http:\S+)\n.*Reference of the API:\n {2}\S+\n/s.exec(output) ?? []
        if (base !== undefined) resolve(base)
      }
      service?.stdout?.on("data", look)
      service?.stderr?.on("data", look)
      void ended.then(() => reject(new Error(`It ended: ${output}`)))
    })
    const chat = `npx --yes --package ./${basename(host.tarball)} causeway chat --url ${base}`
    for (const shown of [
      `Causeway ${host.manifest().version}, `,
      `  ${chat}\n`,
      `  ${base}/chat\n`,
      `  ${base}/console\n`,
      `  ${base}/docs\n`
    ]) {
      expect(output).toContain(shown)
    }
    const put = await fetch(`${base}/api/v1/kv/tenant%3Ademo%2Fnotes/hello`, {
      method: "PUT",
      headers: { authorization: "Bearer dev-key", "content-type": "application/json" },
      body: '{"value":"world"}'
    })
    expect([put.status, await put.json()]).toEqual([200, expect.objectContaining({ value: "world", version: 1 })])
    for (const page of ["chat", "console", "docs"]) {
      const answer = await fetch(`${base}/${page}`)
      expect([page, answer.status, answer.headers.get("content-type")]).toEqual([
        page,
        200,
        expect.stringMatching(/html/)
      ])
    }
    expect(await run("sh", ["-c", `echo hello | ${chat}`], folder, env as Record<string, string>)).toContain(
      '"text":"echo: hello"'
    )
    expect(readdirSync(folder).sort()).toEqual([basename(host.tarball), "data"])
    // As Ctrl-C, which is for all that the terminal has started. The shell itself may die of it.
    process.kill(-service.pid!, "SIGINT")
    await ended
  }, 480_000)
})

describe("for a browser", () => {
  it("the contract has nothing of Node, and the size that its page says", async () => {
    const { metafile, outputFiles } = await build({
      stdin: { contents: 'export * from "causewayd/contract"', resolveDir: directory },
      ...{ bundle: true, minify: true, write: false, metafile: true },
      ...{ format: "esm", platform: "browser", target: "es2022", logLevel: "error" }
    })
    const imports = Object.values(metafile.inputs).flatMap(({ imports }) => imports)
    expect(imports.filter(({ external, path }) => external || path.startsWith("node:"))).toEqual([])
    const size = gzipSync(outputFiles[0]!.contents).length / 1024
    const limit = 160
    console.log(`causewayd/contract: ${size.toFixed(1)} KiB`)
    expect(size).toBeLessThan(limit)
    expect(readFileSync(join(root, "docs/embed/contract.md"), "utf8")).toContain(`less than ${limit} KiB`)
    expect(readFileSync(join(root, "docs/use/client.md"), "utf8")).toContain(
      `| \`causewayd/contract\` | ${limit} KiB |`
    )
  })
})

describe("the examples of the pages of docs", () => {
  const names = [
    "embed/embedding",
    "embed/contract",
    "embed/store",
    "operate/postgresql",
    "embed/gateway",
    "embed/upstream"
  ]
  const pages = names.map(name => {
    const page = readFileSync(join(root, "docs", `${name}.md`), "utf8")
    const found = [...page.matchAll(/```ts\n\/\/ ([\w-]+)\.ts\n(.*?)```/gs)]
    return { name, page, examples: found.map(([, name = "", code = ""]) => [name, code] as const) }
  })
  const examples = pages.flatMap(({ examples }) => examples)
  const folder = join(directory, "examples")
  const launched = /NodeRuntime\.runMain/
  let service: ChildProcess

  beforeAll(async () => {
    mkdirSync(folder)
    // In an empty folder, as `npx causewayd dev` is run.
    service = spawn(process.execPath, [join(installed, "dist", "main.js"), "dev"], {
      cwd: mkdtempSync(join(directory, "data-")),
      env: { PATH: process.env.PATH, PORT: "0" },
      stdio: ["ignore", "pipe", "inherit"]
    })
    const address = await new Promise<string>((resolve, reject) => {
      let output = ""
      service.stdout?.on("data", chunk => {
        output += chunk
        const found = /at http:\/\/(127\.0\.0\.1:\d+)\n/.exec(output)
        if (found !== null) resolve(found[1]!)
      })
      service.once("exit", code => reject(new Error(`causeway dev ended with ${code}: ${output}`)))
    })
    for (const [name, code] of examples) {
      // Any free port.
      const placed = launched.test(code)
        ? code.replaceAll(/\b808\d\b/g, "0")
        : code.replaceAll("127.0.0.1:8080", address)
      writeFileSync(join(folder, `${name}.ts`), `export {}\n${placed}`)
    }
    expect(await host.compile(folder, ["*.ts"], { skipLibCheck: true })).toBe("")
  }, 900_000)

  afterAll(() => service.kill("SIGKILL"))

  it.each(pages)("are all of $name.md, each with a name of its own", ({ examples: own, page }) => {
    expect(page.match(/```ts\n/g)).toHaveLength(own.length)
    for (const [name] of own) expect(examples.filter(([other]) => other === name)).toHaveLength(1)
  })

  it.each(examples.filter(([, code]) => launched.test(code)))("%s listens, and ends at SIGTERM", async (name, code) => {
    const data = mkdtempSync(join(directory, "data-"))
    const child = spawn(process.execPath, ["--import", watching, join(folder, `${name}.js`)], { cwd: data })
    let output = ""
    const ports = new Set<string>()
    const ended = new Promise<number | null>(resolve => child.once("exit", resolve))
    const wanted = [...code.matchAll(/\b808\d\b/g)].length
    await new Promise<void>((resolve, reject) => {
      const onData = (chunk: Buffer) => {
        output += chunk
        for (const [, port = ""] of output.matchAll(/test listens at (\d+)\n/g)) ports.add(port)
        if (ports.size === wanted) resolve()
      }
      child.stdout.on("data", onData)
      child.stderr.on("data", onData)
      child.once("exit", code => reject(new Error(`It ended with ${code}: ${output}`)))
    })
    for (const port of ports) expect((await fetch(`http://127.0.0.1:${port}/`)).status).toBe(404)
    child.kill("SIGTERM")
    expect([await ended, output]).toEqual([expect.toBeOneOf([0, 130, 143]), expect.any(String)])
  })

  it.each(examples.filter(([, code]) => !launched.test(code)))("%s runs", async name => {
    await run(process.execPath, [join(folder, `${name}.js`)], mkdtempSync(join(directory, "data-")))
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

const restarts = times(20)

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
  }, 900_000)

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
