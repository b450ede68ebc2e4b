/** The package for hosts without Effect: packed, unpacked beside its dependencies alone, and used from plain JavaScript. */
import { execFile } from "node:child_process"
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import { publint } from "publint"
import { formatMessage } from "publint/utils"
import { afterAll, beforeAll, describe, expect, it } from "vitest"

const root = fileURLToPath(new URL("../..", import.meta.url))
const modules = join(root, "node_modules")
const host = mkdtempSync(join(tmpdir(), "causeway-standalone-"))
const installed = join(host, "node_modules", "causeway-standalone")

const run = async (file: string, args: ReadonlyArray<string>, cwd: string) => {
  const { stdout } = await promisify(execFile)(file, [...args], { cwd, maxBuffer: 16 * 1024 * 1024 })
  return stdout
}

const script = async (name: string, ...args: ReadonlyArray<string>) =>
  JSON.parse(await run(process.execPath, ["--expose-gc", join(host, name), ...args], host))

interface Manifest {
  readonly dependencies?: Readonly<Record<string, string>>
  readonly peerDependencies?: Readonly<Record<string, string>>
}

const manifestOf = (directory: string): Manifest => JSON.parse(readFileSync(join(directory, "package.json"), "utf8"))

/** Links a package's dependencies, and theirs. */
const linkDependencies = (directory: string): void => {
  for (const name of Object.keys(manifestOf(directory).dependencies ?? {})) {
    const to = join(host, "node_modules", name)
    if (existsSync(to)) continue
    symlinkSync(join(modules, name), to)
    linkDependencies(join(modules, name))
  }
}

beforeAll(async () => {
  const built = join(host, "built")
  await run(join(modules, ".bin", "tsx"), ["scripts/standalone.ts", built], root)
  const packed = JSON.parse(await run("npm", ["pack", "--json", "--silent", "--pack-destination", host], built))
  mkdirSync(installed, { recursive: true })
  await run("tar", ["-xzf", join(host, packed[0].filename), "--strip-components=1", "-C", installed], host)
  linkDependencies(installed)
  rmSync(built, { recursive: true })
  cpSync(fileURLToPath(new URL("standalone", import.meta.url)), host, { recursive: true })
  writeFileSync(join(host, "package.json"), JSON.stringify({ name: "host", type: "module", private: true }))
}, 300_000)

afterAll(() => rmSync(host, { recursive: true, force: true }))

const expected = {
  // Written; nobody in particular; another tenant's; and what was written, by whom the host says.
  answers: [200, 401, 403, [1], "alice"],
  seen: [["k", "alice"]],
  code: 1001
}

describe("the package without Effect", () => {
  it("depends on no Effect, and declares none", async () => {
    const { dependencies = {}, peerDependencies = {} } = manifestOf(installed)
    expect(Object.keys(dependencies)).toEqual(["better-sqlite3", "ws"])
    expect(Object.keys(peerDependencies)).toEqual(["@types/node"])
    expect(readFileSync(join(installed, "dist/causeway/index.d.ts"), "utf8")).not.toMatch(/from "(?!node:)/)
    expect(readFileSync(join(installed, "THIRD-PARTY-LICENSES"), "utf8")).toMatch(/^effect \d/m)
    const { messages, pkg } = await publint({ pkgDir: installed, strict: true })
    expect(messages.map(message => formatMessage(message, pkg, { color: false }))).toEqual([])
  })

  it("has types for each way of importing it", async () => {
    const tarball = readdirSync(host).find(name => name.endsWith(".tgz"))!
    await run(join(modules, ".bin", "attw"), [tarball, "--profile", "esm-only"], host)
  }, 120_000)

  it("has declarations that a strict host compiles against", async () => {
    const lines = [
      'import { createServer } from "node:http"',
      'import { createCauseway, type Identity } from "causeway-standalone"',
      'const alice: Identity = { access: "write", actor: "alice" }',
      'const causeway = await createCauseway({ store: "memory", identity: async () => alice })',
      "createServer(causeway.handler).on('upgrade', causeway.upgrade)",
      "// @ts-expect-error",
      'await createCauseway({ store: "disk", identity: () => null })'
    ]
    writeFileSync(join(host, "host.ts"), lines.join("\n"))
    const compilerOptions = {
      ...{ target: "ES2022", module: "NodeNext", moduleResolution: "NodeNext", types: ["node"] },
      ...{ typeRoots: [join(modules, "@types")], strict: true, exactOptionalPropertyTypes: true, noEmit: true }
    }
    writeFileSync(join(host, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["host.ts"] }))
    const errors = await run(process.execPath, [join(modules, "typescript/bin/tsc"), "-p", host], host).catch(
      ({ stdout, message }) => stdout || message
    )
    expect(errors).toBe("")
  }, 120_000)

  it("serves in a plain server, ends with followers connected, and starts again twenty times without a leak", async () => {
    const { effect, leaked, refused, runs, taken } = await script("plain.mjs", join(host, "data"))
    const each = { ...expected, own: "the host's own", ready: true, late: 503, isStream: true, poll: [] }
    expect(runs).toHaveLength(20)
    for (const { isCounted, ...result } of runs) {
      expect(result).toEqual(each)
      expect(isCounted).not.toBe(false)
    }
    // One for each restart would be nineteen; idle connections of the client come and go.
    expect(leaked).toBeLessThan(10)
    expect(effect).toBe("not found")
    expect(refused).toMatch(/prefix must be a path/)
    expect(taken).toMatch(/dev\/null/)
  }, 120_000)

  it("is mounted in fastify, and where a framework takes mount points off", async () => {
    const results = await script("frameworks.mjs", join(root, "package.json"))
    expect(results).toEqual({
      fastify: { ...expected, host: "hello" },
      "express-like": { ...expected, host: "hello" }
    })
  }, 120_000)
})
