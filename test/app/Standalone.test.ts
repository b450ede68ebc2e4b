/**
 * The service for hosts without Effect, from its source: the gateway, options, and the examples of docs/embed/standalone.md.
 */
import { once } from "node:events"
import { readFileSync } from "node:fs"
import { createServer, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import { Effect } from "effect"
import { transformSync } from "esbuild"
import { type FastifyInstance, fastify } from "fastify"
import { afterEach, describe, expect, it } from "vitest"
import { WebSocket } from "ws"
import type { Causeway, CausewayOptions, Identity, LogLine } from "../../src/app/Standalone/Interface.ts"
import { createCauseway } from "../../src/app/Standalone.ts"
import * as Simulator from "../../src/Simulator/Simulator.ts"

const alice: Identity = { access: "write", actor: "alice", tenant: "acme" }

const identity: CausewayOptions["identity"] = ({ credential }) => (credential === "Bearer alice" ? alice : null)

const headers = { authorization: "Bearer alice" }

const open: Array<() => Promise<unknown>> = []

afterEach(async () => {
  for (const close of open.splice(0).reverse()) await close()
})

const listen = async (causeway: Causeway): Promise<string> => {
  const server: Server = createServer(causeway.handler)
  server.on("upgrade", causeway.upgrade)
  await new Promise<void>(resolve => {
    server.listen(0, "127.0.0.1", resolve)
  })
  open.push(async () => {
    server.closeAllConnections()
    await new Promise(resolve => server.close(resolve))
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

const start = async (options: Partial<CausewayOptions> = {}) => {
  const causeway = await createCauseway({ store: "memory", identity, ...options })
  open.push(causeway.close)
  return { causeway, url: await listen(causeway) }
}

interface Frame {
  readonly type: string
  readonly [field: string]: unknown
}

describe("the gateway without Effect", () => {
  it("serves sessions under the prefix, and sends clients away at the end", () =>
    Effect.gen(function* () {
      const simulator = yield* Simulator.make({ seed: 1 })
      const gateway = {
        agentPlatform: { url: simulator.platformUrl },
        inference: { url: simulator.inferenceUrl, apiKey: "key" }
      }
      yield* Effect.promise(async () => {
        const { causeway, url } = await start({ gateway, prefix: "/agents" })
        const socket = new WebSocket(`${url.replace("http", "ws")}/agents/ws`, { headers })
        const frames: Array<Frame> = []
        const next = (type: string) =>
          new Promise<Frame>((resolve, reject) => {
            const look = () => {
              const found = frames.find(frame => frame.type === type)
              if (found !== undefined) resolve(found)
            }
            socket.on("message", look).on("error", reject)
            look()
          })
        socket.on("message", data => frames.push(JSON.parse(String(data))))
        const ask = (frame: object) => socket.send(JSON.stringify({ id: "1", ...frame }))
        await new Promise((resolve, reject) => socket.on("open", resolve).on("error", reject))
        ask({ type: "create_session", agentType: "echo" })
        const { session } = await next("session_created")
        const { id: sessionId, tenant } = session as { readonly id: string; readonly tenant: string }
        expect(tenant).toBe("acme")
        ask({ type: "subscribe", sessionId })
        ask({ type: "send_message", sessionId, content: "hello" })
        expect(await next("turn_started")).toMatchObject({ sub: "alice", content: "hello" })
        await next("turn_completed")
        const health = (await (await fetch(`${url}/agents/health`)).json()) as { dependencies: Array<{ name: string }> }
        expect(health.dependencies.map(({ name }) => name)).toEqual(["agent_platform", "inference"])
        const code = new Promise(resolve => socket.on("close", resolve))
        await causeway.close()
        expect(await code).toBe(1001)
      })
    }).pipe(Effect.scoped, Effect.runPromise))
})

describe("an instance without Effect", () => {
  it("answers what is not its own, and what is refused, in JSON", async () => {
    const { url } = await start({ prefix: "/store" })
    const answers = [
      await fetch(`${url}/elsewhere`),
      await fetch(`${url}/store/nowhere`, { headers }),
      await fetch(`${url}/store/api/v1/kv/tenant%3Aacme/k`)
    ]
    expect(await Promise.all(answers.map(async answer => [answer.status, await answer.json()]))).toEqual([
      [404, { error: "Not found: the service has no such route" }],
      [404, { error: "Not found: the service has no such route" }],
      [401, { error: "Unauthorized" }]
    ])
    const socket = new WebSocket(`${url.replace("http", "ws")}/store/api/v1/changes/ws`)
    const refused = await new Promise<Error>(resolve => socket.on("error", resolve))
    expect(refused.message).toContain("401")
  })

  it("answers 500 and logs where the host's identity fails", async () => {
    const lines: Array<LogLine> = []
    const failing: CausewayOptions["identity"] = async () => {
      throw new Error("the directory is unreachable")
    }
    const { url } = await start({ identity: failing, log: line => lines.push(line) })
    const answer = await fetch(`${url}/api/v1/kv/n/k`, { headers })
    expect([answer.status, await answer.json()]).toEqual([500, { error: "Internal server error" }])
    expect(lines.filter(({ level }) => level === "ERROR").map(({ message }) => message)).toEqual([
      expect.stringContaining("the directory is unreachable")
    ])
  })

  it.each<[string, object]>([
    ["store must be", { store: "disk" }],
    ["store must be", { store: {} }],
    ["identity must be", { identity: "alice" }],
    ["prefix must be", { prefix: "/store/" }],
    ["retention must be", { retention: -1 }],
    ["gracePeriod must be", { gracePeriod: "soon" }],
    ["gateway.agentPlatform.url must be", { gateway: { agentPlatform: { url: "ftp://x" } } }],
    ["is a label that metrics have", { metrics: { tags: { route: "x" } } }]
  ])("is refused: %s", async (message, options) => {
    await expect(createCauseway({ store: "memory", identity, ...options } as CausewayOptions)).rejects.toThrow(message)
  })
})

describe("docs/embed/standalone.md", () => {
  const page = readFileSync(new URL("../../docs/embed/standalone.md", import.meta.url), "utf8")
  const [plain = "", inFastify = ""] = [...page.matchAll(/```ts\n(.*?)```/gs)].map(([, code = ""]) => code)

  /** Runs an example, whose imports are given to it. */
  const run = async (code: string, scope: Readonly<Record<string, unknown>>) => {
    const body = code.replaceAll(/^import .*\n/gm, "").replaceAll(/^const (causeway|server) =/gm, "scope.$1 =")
    const { code: script } = transformSync(`const run = async scope => { with (scope) {${body}} }`, { loader: "js" })
    const made: Record<string, unknown> = { causeway: undefined, server: undefined, ...scope }
    await new Function(`${script}; return run`)()(made)
    return made
  }

  it("runs in a plain server", async () => {
    let terminate: (() => Promise<void>) | undefined
    const { causeway, server } = await run(plain, {
      createCauseway: (options: CausewayOptions) => createCauseway({ ...options, store: "memory" }),
      createServer,
      directory: "",
      port: 0,
      process: { once: (_signal: string, listener: () => Promise<void>) => (terminate = listener) },
      userOf: async (credential: string) =>
        credential === headers.authorization ? { name: "alice", company: "acme" } : undefined
    })
    if (!(server as Server).listening) await once(server as Server, "listening")
    const { port } = (server as Server).address() as AddressInfo
    expect(await (causeway as Causeway).ready()).toBe(true)
    const answer = await fetch(`http://127.0.0.1:${port}/store/api/v1/kv/tenant%3Aacme`, { headers })
    expect(await answer.json()).toEqual({ items: [] })
    expect((await fetch(`http://127.0.0.1:${port}/store/metrics`)).status).toBe(200)
    await terminate!()
  })

  it("runs in fastify", async () => {
    const { causeway } = await start({ prefix: "/store" })
    const app: FastifyInstance = fastify()
    open.push(() => app.close())
    await run(inFastify, { app, causeway })
    app.get("/hello", () => "hello")
    const url = await app.listen({ port: 0, host: "127.0.0.1" })
    expect(await (await fetch(`${url}/hello`)).text()).toBe("hello")
    expect(await (await fetch(`${url}/store/api/v1/health`)).json()).toEqual({ ok: true })
  })
})
