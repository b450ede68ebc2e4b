/**
 * Makes a client of the service by each of several generators, compiles it under strict rules and uses it against the
 * running service; then has linters look at the OpenAPI and AsyncAPI documents: `npm run test:system`.
 *
 * The generators bring 400 packages along, so they are not installed for development but here, into a temporary
 * directory.
 */
import assert from "node:assert/strict"
import { type ChildProcess, execFile, spawn } from "node:child_process"
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { createInterface } from "node:readline"
import { fileURLToPath, pathToFileURL } from "node:url"
import { promisify } from "node:util"
import type { Client, Make } from "./uses/Client.ts"

const root = fileURLToPath(new URL("../..", import.meta.url))
const directory = mkdtempSync(join(tmpdir(), "causeway-generators-"))
const token = "key-that-writes"

const run = async (program: string, ...args: ReadonlyArray<string>): Promise<string> => {
  try {
    const options = { cwd: directory, maxBuffer: 16 * 1024 * 1024 }
    const { stderr, stdout } = await promisify(execFile)(program, [...args], options)
    return `${stdout}${stderr}`
  } catch (error) {
    const { stderr = "", stdout = "" } = error as { stderr?: string; stdout?: string }
    throw new Error(`${program} ${args.join(" ")}\n${stdout}${stderr}`, { cause: error })
  }
}

const installed = (name: string): string => join(directory, "node_modules", ".bin", name)

const generators: Readonly<Record<string, () => Promise<string>>> = {
  "openapi-typescript": () =>
    run(installed("openapi-typescript"), "openapi.json", "-o", "generated/openapi-typescript.ts"),
  "hey-api": () =>
    run(installed("openapi-ts"), "-i", "openapi.json", "-o", "generated/hey-api", "-c", "@hey-api/client-fetch"),
  orval: () => run(installed("orval"), "--config", "orval.config.mjs"),
  "swagger-typescript-api": () =>
    run(
      installed("swagger-typescript-api"),
      ...["generate", "-p", "openapi.json", "-o", "generated", "-n", "swagger-typescript-api.ts"]
    )
}

/** Starts the service, and returns its address once it serves. */
const started = (child: ChildProcess): Promise<string> =>
  new Promise((resolve, reject) => {
    child.once("exit", code => reject(new Error(`The service ended with ${code}`)))
    createInterface({ input: child.stdout! }).on("line", line => {
      const port = /"Listening".*"port":(\d+)/.exec(line)?.[1]
      if (port !== undefined) resolve(`http://127.0.0.1:${port}`)
    })
  })

/** Common operations of the store, with names that have to be percent-encoded. */
const exercise = async (client: Client, name: string): Promise<void> => {
  const namespace = `tenant:acme/${name}`
  const at = { namespace, key: "a/b c" }
  const [before = 0] = (await client.changesAfter(0)).slice(-1)
  const value = { list: [1, null, "é"] }
  assert.deepEqual(pick(await client.set(at, value)), { version: 1, value })
  assert.deepEqual(pick(await client.get(at)), { version: 1, value })
  assert.deepEqual(pick(await client.set(at, 2, '"1"')), { version: 2, value: 2 })
  assert.match(JSON.stringify(await client.set(at, 3, '"1"')), /^\{"error":"Precondition failed: /)
  assert.deepEqual(await client.get({ namespace, key: "none" }), { error: "Not found" })
  assert.equal(await client.batch(namespace, "other", at.key), 2)
  assert.deepEqual(await client.keys(namespace), ["other"])
  assert.equal(await client.remove({ namespace, key: "other" }), true)
  assert.equal(await client.remove({ namespace, key: "other" }), false)
  assert.deepEqual(
    await client.changesAfter(before),
    [1, 2, 3, 4, 5].map(step => before + step)
  )
}

const pick = (outcome: object) =>
  "version" in outcome && "value" in outcome ? { version: outcome.version, value: outcome.value } : outcome

/** The commands of the page for a generator, on the document that the command line has printed. */
const followPage = async (): Promise<void> => {
  const page = readFileSync(join(root, "docs/reference/http-api.md"), "utf8")
  const command = /^npx --yes (openapi-typescript)@(\d+) (.*)$/m.exec(page)
  assert(command, "docs/reference/http-api.md shows a generator")
  const [, name = "", major = "", args = ""] = command
  const { version } = JSON.parse(readFileSync(join(directory, "node_modules", name, "package.json"), "utf8"))
  assert.equal(version.split(".")[0], major)
  await run(installed(name), ...args.split(" "))
  assert.match(readFileSync(join(directory, "causeway.ts"), "utf8"), /export interface paths/)
}

const main = async (url: string): Promise<void> => {
  writeFileSync(
    join(directory, "openapi.json"),
    await run("sh", "-c", `cd '${root}' && npm run --silent causeway -- openapi`)
  )
  const headers = { authorization: `Bearer ${token}` }
  const asyncApi = await fetch(`${url}/api/v1/asyncapi.json`, { headers })
  writeFileSync(join(directory, "asyncapi.json"), await asyncApi.text())
  const openApi = await fetch(`${url}/api/v1/openapi.json`, { headers })
  assert.deepEqual(JSON.parse(readFileSync(join(directory, "openapi.json"), "utf8")), await openApi.json())
  await followPage()
  for (const generate of Object.values(generators)) await generate()
  await run(process.execPath, join(root, "node_modules/typescript/bin/tsc"), "-p", ".")
  for (const name of Object.keys(generators)) {
    const { make } = (await import(pathToFileURL(join(directory, "uses", `${name}.ts`)).href)) as { make: Make }
    await exercise(make(url, token), name)
    console.log(`The client of ${name} compiles and works.`)
  }
  const said = await run(installed("redocly"), "lint", "openapi.json", "--config", "redocly.yaml")
  // It fails for errors alone.
  assert.doesNotMatch(said, /warning/i)
  const spectral = ["--fail-severity", "warn"]
  await run(installed("spectral"), "lint", "openapi.json", "-r", "spectral.yaml", ...spectral)
  await run(installed("spectral"), "lint", "asyncapi.json", "-r", "spectral-asyncapi.yaml", ...spectral)
  console.log("Redocly and Spectral have nothing to say.")
}

let service: ChildProcess | undefined
try {
  cpSync(join(root, "test/generators"), directory, { recursive: true })
  await run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
  service = spawn(process.execPath, ["--import", "tsx", "src/main.ts"], {
    cwd: root,
    env: {
      PATH: process.env.PATH,
      NODE_ENV: "production",
      PORT: "0",
      KV_API_KEY: token,
      DATA_DIR: join(directory, "data")
    },
    stdio: ["ignore", "pipe", "inherit"]
  })
  await main(await started(service))
} finally {
  service?.removeAllListeners("exit").kill("SIGKILL")
  rmSync(directory, { recursive: true, force: true })
}
