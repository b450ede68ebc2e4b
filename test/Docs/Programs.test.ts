/** Runs the examples in TypeScript and JavaScript of pages that have no test of their own. */

import { once } from "node:events"
import { existsSync } from "node:fs"
import { createServer, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import * as HttpApi from "@effect/platform/HttpApi"
import * as OpenApi from "@effect/platform/OpenApi"
import { fastify } from "fastify"
import { describe, expect, it } from "vitest"
import manifest from "../../package.json" with { type: "json" }
import { createCauseway } from "../../src/app/Standalone.ts"
import * as Causeway from "../../src/exports/index.ts"
import { evaluate, fencesOf, programsOf, root } from "./Page.ts"

it.each(["docs/use/client.md", "docs/embed/testing.md"])("%s imports what there is", async page => {
  const lines = fencesOf(page)
    .filter(({ language }) => language === "js")
    .flatMap(({ code }) => code.trim().split("\n"))
  expect(lines.length).toBeGreaterThan(1)
  for (const line of lines) {
    const [, names = "", from = ""] = /^import (.*?) from "causewayd\/([^"]+)"/.exec(line) ?? []
    const target: { readonly types: string } | undefined = Object.entries(manifest.exports).find(
      (entry): entry is [string, { readonly types: string; readonly default: string }] =>
        entry[0] === `./${from}` && typeof entry[1] === "object"
    )?.[1]
    const source = `${root}${target?.types.replace("./dist/", "src/").replace(".d.ts", ".ts")}`
    expect(existsSync(source), line).toBe(true)
    const found: Readonly<Record<string, unknown>> = await import(source)
    for (const name of names.startsWith("*") ? [] : names.replace(/[{}]/g, "").split(",")) {
      expect(Object.keys(found), line).toContain(name.trim())
    }
  }
})

it("docs/operate/console.md mounts the pages where the application puts them", async () => {
  const [program = ""] = programsOf("docs/operate/console.md")
  const [api] = await evaluate(program, { HttpApi, ...Causeway }, ["api"])
  expect(HttpApi.isHttpApi(api)).toBe(true)
  const paths: Array<string> = []
  HttpApi.reflect(api as HttpApi.HttpApi.Any as never, {
    onGroup: () => {},
    onEndpoint: ({ endpoint }) => paths.push(endpoint.path)
  })
  expect(paths).toEqual(expect.arrayContaining(["/admin/console/", "/admin/docs/", "/api/v1/activity"]))
  expect(Object.keys(OpenApi.fromApi(api as never).paths)).not.toContain("/admin/console/")
})

const headers = { authorization: "Bearer sesame", "content-type": "application/json" }

const address = (server: Server): string => `http://127.0.0.1:${(server.address() as AddressInfo).port}`

/** Writes an entry and reads it, under the prefix of the page. */
const use = async (base: string): Promise<unknown> => {
  const path = `${base}/store/api/v1/kv/tenant%3Ashop%2Fstock/apples`
  const written = await fetch(path, { method: "PUT", headers, body: '{"value":9}' })
  const { updatedBy } = (await written.json()) as { readonly updatedBy: string }
  return [written.status, updatedBy, (await fetch(path)).status, (await fetch(`${base}/other`)).status]
}

describe("docs/embed/standalone.md", () => {
  const [plain = "", framework = ""] = programsOf("docs/embed/standalone.md")
  const alice = { name: "alice", company: "shop" }
  const userOf = async (credential: string | undefined) => (credential === "Bearer sesame" ? alice : undefined)

  it("serves in a server of Node, and ends at SIGTERM", async () => {
    let stop = async () => {}
    const onSignal = { once: (_: string, handler: () => Promise<void>) => (stop = handler) }
    const scope = { createServer, createCauseway, directory: "memory", userOf, port: 0, process: onSignal }
    const program = plain.replace("{ directory }", '"memory"')
    expect(program).not.toBe(plain)
    const [server] = (await evaluate(program, scope, ["server"])) as [Server]
    if (!server.listening) await once(server, "listening")
    expect(await use(address(server))).toEqual([200, "alice", 401, 404])
    await stop()
    expect(server.listening).toBe(false)
    server.closeAllConnections()
  })

  it("is mounted in fastify", async () => {
    const app = fastify()
    const causeway = await createCauseway({
      store: "memory",
      prefix: "/store",
      identity: async ({ credential }) =>
        (await userOf(credential)) === undefined ? null : { access: "write", actor: "alice" }
    })
    await evaluate(framework, { app, causeway }, [])
    await app.listen({ port: 0, host: "127.0.0.1" })
    expect(await use(address(app.server))).toEqual([200, "alice", 401, 404])
    await app.close()
    await causeway.close()
  })
})
