/**
 * The package for hosts without Effect: packed, unpacked with only its dependencies, and used from plain JavaScript.
 */
import { cpSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { Host, modules, root, run, withBuiltPages } from "./Host.ts"

const host = new Host("causewayd-standalone")
const { directory, installed } = host

const script = async (name: string, ...args: ReadonlyArray<string>) =>
  JSON.parse(await run(process.execPath, ["--expose-gc", join(directory, name), ...args], directory))

beforeAll(async () => {
  const built = join(directory, "built")
  await run(join(modules, ".bin", "tsx"), ["scripts/standalone.ts", built], root, await withBuiltPages())
  await host.install(built)
  rmSync(built, { recursive: true })
  cpSync(fileURLToPath(new URL("standalone", import.meta.url)), directory, { recursive: true })
}, 900_000)

afterAll(() => host.remove())

const expected = {
  // A write; a request without an identity; another tenant's; and the written entry, with the host's author.
  answers: [200, 401, 403, [1], "alice"],
  seen: [["k", "alice"]],
  code: 1001
}

describe("the package without Effect", () => {
  it("depends on no Effect, and declares none", async () => {
    const { dependencies = {}, peerDependencies = {} } = host.manifest()
    expect(Object.keys(dependencies)).toEqual(["better-sqlite3", "ws"])
    expect(Object.keys(peerDependencies)).toEqual(["@types/node"])
    expect(readFileSync(join(installed, "dist/causeway/index.d.ts"), "utf8")).not.toMatch(/from "(?!node:)/)
    expect(readFileSync(join(installed, "THIRD-PARTY-LICENSES"), "utf8")).toMatch(/^effect \d/m)
    expect(await host.faults()).toEqual([])
  })

  it("has types for each way of importing it", () => host.checkTypes(), 900_000)

  it("has declarations that a strict host compiles against", async () => {
    const lines = [
      'import { createServer } from "node:http"',
      'import { createCauseway, type Identity } from "causewayd-standalone"',
      'const alice: Identity = { access: "write", actor: "alice" }',
      'const causeway = await createCauseway({ store: "memory", identity: async () => alice })',
      "createServer(causeway.handler).on('upgrade', causeway.upgrade)",
      "// @ts-expect-error",
      'await createCauseway({ store: "disk", identity: () => null })'
    ]
    writeFileSync(join(directory, "host.ts"), lines.join("\n"))
    const typeRoots = [join(modules, "@types")]
    expect(await host.compile(directory, ["host.ts"], { typeRoots, noEmit: true })).toBe("")
  }, 900_000)

  it("serves in a plain server, ends with followers connected, and starts again twenty times without a leak", async () => {
    const { effect, leaked, refused, runs, taken } = await script("plain.mjs", join(directory, "data"))
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
  }, 900_000)

  it("is mounted in fastify, and where a framework takes mount points off", async () => {
    const results = await script("frameworks.mjs", join(root, "package.json"))
    expect(results).toEqual({
      fastify: { ...expected, host: "hello" },
      "express-like": { ...expected, host: "hello" }
    })
  }, 900_000)
})
