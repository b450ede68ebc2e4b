/** An application on Effect 4 with the standalone package: what docs/embed/effect-4.md shows, installed by npm. */
import { spawn } from "node:child_process"
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { fencesOf } from "../Docs/Page.ts"
import { freePort } from "../postgres/Server.ts"
import { Host, modules, root, run, withBuiltPages } from "./Host.ts"

const host = new Host("causewayd-standalone")
const { directory, installed } = host

/** The line of Effect that the page names, in the version that is tested. */
const effect = ["effect@4.1.0", "@effect/platform-node@4.1.0"]

const programs = fencesOf("docs/embed/effect-4.md").flatMap(({ code, language }) => {
  const [, name] = /^\/\/ ([\w-]+\.ts)\n/.exec(code) ?? []
  return language === "ts" ? [{ name: name ?? "", code }] : []
})

/** A module that uses the documents of the contract as a generator does. */
const documents = `
  import openApi from "causewayd-standalone/openapi.json" with { type: "json" }
  import asyncApi from "causewayd-standalone/asyncapi.json" with { type: "json" }
  console.log(JSON.stringify([openApi.openapi, asyncApi.asyncapi, Object.keys(openApi.paths)]))
`

beforeAll(async () => {
  const built = join(directory, "built")
  await run(join(modules, ".bin", "tsx"), ["scripts/standalone.ts", built], root, await withBuiltPages())
  await host.install(built)
  rmSync(built, { recursive: true })
  rmSync(join(directory, "node_modules"), { recursive: true })
  const { version } = JSON.parse(readFileSync(join(modules, "@types/node/package.json"), "utf8"))
  const packages = [host.tarball, ...effect, `@types/node@${version}`]
  await run("npm", ["install", "--no-audit", "--no-fund", "--loglevel=error", ...packages], directory)
}, 900_000)

afterAll(() => host.remove())

describe("docs/embed/effect-4.md", () => {
  it("has one Effect, which is that of the application", async () => {
    const listed = JSON.parse(await run("npm", ["ls", "effect", "--all", "--json"], directory))
    expect(JSON.stringify(listed).match(/"effect":\{"version":"(?!4\.)/g)).toBeNull()
    expect(Object.keys(host.manifest().peerDependencies ?? {})).toEqual(["@types/node"])
    expect(readFileSync(join(installed, "dist/client/index.js"), "utf8")).not.toMatch(/from ["']/)
  })

  it("has the documents that the service has", async () => {
    const [openApi, asyncApi, paths] = JSON.parse(
      await run(process.execPath, ["--input-type=module", "--eval", documents], directory)
    )
    expect([openApi, asyncApi]).toEqual(["3.0.3", "3.0.0"])
    expect(paths).toContain("/api/v1/kv/{namespace}/{key}")
  })

  it("has programs that compile under strict rules, serve, use the store, and end at SIGTERM", async () => {
    expect(programs.map(({ name }) => name)).toEqual(["app.ts", "client.ts"])
    const port = await freePort()
    const folder = join(directory, "app")
    mkdirSync(folder)
    for (const { code, name } of programs) writeFileSync(join(folder, name), code.replaceAll("8080", String(port)))
    expect(await host.compile(folder, ["*.ts"], { skipLibCheck: true })).toBe("")
    const child = spawn(process.execPath, [join(folder, "app.js")], { cwd: folder })
    const ended = new Promise<number | null>(resolve => child.once("exit", resolve))
    try {
      await new Promise<void>((resolve, reject) => {
        let output = ""
        const look = (chunk: Buffer) => {
          output += chunk
          if (output.includes("Listening")) resolve()
        }
        child.stdout.on("data", look)
        child.stderr.on("data", look)
        void ended.then(code => reject(new Error(`It ended with ${code}: ${output}`)))
      })
      expect(await run(process.execPath, [join(folder, "client.js")], folder)).toMatch(/\[ 'dark', true \]/)
      const headers = { authorization: "Bearer secret" }
      // It follows until the application ends, and does not delay that.
      const stream = await fetch(`http://127.0.0.1:${port}/store/api/v1/changes/stream`, { headers })
      expect(stream.status).toBe(200)
      child.kill("SIGTERM")
      await stream.text()
      expect(await ended).toBeOneOf([0, 130, 143])
    } finally {
      child.kill("SIGKILL")
    }
  }, 900_000)
})
