/** Features of a host's own platform server, and of ours: shutdown and metrics. All over real sockets. */
import { spawn } from "node:child_process"
import { once } from "node:events"
import { createServer, get, type IncomingMessage } from "node:http"
import { type AddressInfo, connect, type Socket } from "node:net"
import { createInterface } from "node:readline"
import { describe, expect, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Layer, Logger, Scope } from "effect"
import { WebSocket } from "ws"
import * as Compiled from "../../service/Compiled.ts"
import { test } from "../../Tests.ts"
import { type Kind, key, listeningFirst, serve } from "./Host.ts"

const headers = { authorization: `Bearer ${key}` }

const textOf = async (response: IncomingMessage): Promise<string> => {
  let text = ""
  for await (const chunk of response) text += chunk
  return text
}

const request = (port: number, path: string): Promise<IncomingMessage> =>
  new Promise((resolve, reject) =>
    get({ port, host: "127.0.0.1", path: `/api/v1${path}`, headers, agent: false }, resolve).on("error", reject)
  )

/** Clients of the change feed: everything that each gets until the end of its connection. */
const poll = async (port: number): Promise<unknown> => {
  const response = await request(port, "/changes?wait=60")
  return [response.statusCode, JSON.parse(await textOf(response))]
}

const stream = async (port: number): Promise<unknown> => {
  const response = await request(port, "/changes/stream")
  return [response.statusCode, await textOf(response)]
}

const socket = (port: number): Promise<unknown> => {
  const client = new WebSocket(`ws://127.0.0.1:${port}/api/v1/changes/ws`, { headers })
  return new Promise((resolve, reject) => client.on("error", reject).on("close", (code: number) => resolve(code)))
}

interface Sample {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

const samplesOf = async (port: number): Promise<ReadonlyArray<Sample>> => {
  const answer = (await (await fetch(`http://127.0.0.1:${port}/api/metrics`)).json()) as { metrics: Array<Sample> }
  return answer.metrics
}

/** The value of the series with exactly these labels: those of other instances in this process have more. */
const valueOf = (samples: ReadonlyArray<Sample>, name: string, labels: Readonly<Record<string, string>> = {}) =>
  samples.find(
    sample =>
      sample.name === name &&
      Object.keys(sample.labels).length === Object.keys(labels).length &&
      Object.entries(labels).every(([label, value]) => sample.labels[label] === value)
  )?.value

/** Three followers, once the service counts them. */
const follow = async (port: number): Promise<ReadonlyArray<Promise<unknown>>> => {
  const followers = [poll(port), stream(port), socket(port)]
  while (valueOf(await samplesOf(port), "change_feed_followers") !== 3)
    await new Promise(resolve => setImmediate(resolve))
  return followers
}

/** The last messages to followers at the shutdown of a service. */
const farewells = [[200, { changes: [], lastSeq: 0 }], [200, expect.stringMatching(/^retry: 1000\n/)], 1001]

const quiet = Logger.remove(Logger.defaultLogger)

for (const kind of ["stock", "platform", "edge"] as const satisfies ReadonlyArray<Kind>) {
  describe(`a host on ${kind}`, () => {
    it.scopedLive("ends with followers connected, and asks each to reconnect", () =>
      Effect.gen(function* () {
        const scope = yield* Scope.make()
        const port = yield* Scope.extend(serve(kind), scope)
        const ends = yield* Effect.promise(() => follow(port))
        yield* Scope.close(scope, Exit.void)
        expect(yield* Effect.promise(() => Promise.all(ends))).toEqual(farewells)
        yield* Effect.promise(() => expect(request(port, "/health")).rejects.toThrow("ECONNREFUSED"))
      }).pipe(Effect.provide(quiet))
    )

    it.scopedLive("is not delayed by a silent connection", () =>
      Effect.gen(function* () {
        const scope = yield* Scope.make()
        const port = yield* Scope.extend(serve(kind), scope)
        // A platform server is found by its first request.
        yield* Effect.promise(() => request(port, "/health").then(textOf))
        const silent = yield* Effect.async<Socket>(resume => {
          const made = connect(port, "127.0.0.1", () => resume(Effect.succeed(made)))
          made.on("error", () => {})
        })
        yield* Effect.promise(() => request(port, "/health").then(textOf))
        const closed = new Promise(resolve => silent.once("close", resolve))
        silent.resume()
        yield* Scope.close(scope, Exit.void)
        yield* Effect.promise(() => closed)
      }).pipe(Effect.provide(quiet))
    )

    it.scopedLive("counts requests by route, connections and followers", () =>
      Effect.gen(function* () {
        const port = yield* serve(kind)
        const figures = Effect.promise(() => samplesOf(port))
        const route = { route: "/api/v1/kv/{namespace}/{key}", method: "GET", status: "404" }
        const before = yield* figures
        expect(valueOf(before, "http_requests_total", route)).toBeTypeOf("number")
        yield* Effect.promise(() => request(port, "/kv/n/k").then(textOf))
        yield* Effect.promise(() => request(port, "/kv/n/k").then(textOf))
        yield* Effect.promise(() => follow(port))
        const after = yield* figures
        expect(valueOf(after, "http_requests_total", route)! - valueOf(before, "http_requests_total", route)!).toBe(2)
        // The poll, the stream, and this request; a WebSocket is none.
        expect(valueOf(after, "http_requests_in_flight")! - valueOf(before, "http_requests_in_flight")!).toBe(2)
        expect(valueOf(after, "ws_connections_active")! - valueOf(before, "ws_connections_active")!).toBe(1)
        expect(valueOf(after, "http_connections")).toBeTypeOf("number")
        expect(valueOf(after, "change_feed_lag_changes")).toBe(0)
      }).pipe(Effect.provide(quiet))
    )
  })
}

describe("a platform server that listens before its application is built", () => {
  it.scopedLive("answers with 503 until then, and serves after it", () =>
    Effect.gen(function* () {
      const server = createServer()
      const isReady = yield* Deferred.make<void>()
      const listening = once(server, "listening")
      const building = yield* Effect.forkScoped(Layer.build(listeningFirst(server, Deferred.await(isReady))))
      yield* Effect.promise(() => listening)
      // The fiber continues in the turn of the event loop in which the server listens.
      yield* Effect.promise(() => new Promise(resolve => setImmediate(resolve)))
      const port = (server.address() as AddressInfo).port
      const early = yield* Effect.promise(() => request(port, "/health"))
      expect([early.statusCode, early.headers["retry-after"]]).toEqual([503, "1"])
      expect(early.headers["x-request-id"]).toBeTypeOf("string")
      expect(yield* Effect.promise(() => textOf(early))).toBe('{"error":"The service is starting"}')
      const client = new WebSocket(`ws://127.0.0.1:${port}/api/v1/changes/ws`, { headers })
      const refused = yield* Effect.async<IncomingMessage>(resume => {
        client.on("unexpected-response", (_request, response) => resume(Effect.succeed(response)))
      })
      expect(refused.statusCode).toBe(503)
      refused.destroy()
      yield* Deferred.succeed(isReady, undefined)
      yield* Fiber.join(building)
      const answer = yield* Effect.promise(() => request(port, "/health"))
      expect([answer.statusCode, yield* Effect.promise(() => textOf(answer))]).toEqual([
        200,
        expect.stringContaining("ok")
      ])
      expect(server.listenerCount("request")).toBe(1)
    }).pipe(Effect.provide(quiet))
  )
})

describe("a process of a host", () => {
  test.scopedLive("ends by SIGTERM with followers connected", function* () {
    const child = yield* Effect.acquireRelease(
      Effect.sync(() =>
        spawn(process.execPath, [Compiled.program("host")], {
          stdio: ["ignore", "pipe", "inherit"]
        })
      ),
      child => Effect.sync(() => child.kill("SIGKILL"))
    )
    const ended = new Promise(resolve => child.once("exit", (code, signal) => resolve({ code, signal })))
    const port = yield* Effect.promise(async () => {
      for await (const line of createInterface(child.stdout)) {
        const found = /^port=(\d+)$/.exec(line)
        if (found !== null) return Number(found[1])
      }
      throw new Error("The host did not start")
    })
    const ends = yield* Effect.promise(() => follow(port))
    child.kill("SIGTERM")
    expect(yield* Effect.promise(() => Promise.all(ends))).toEqual(farewells)
    expect(yield* Effect.promise(() => ended)).toEqual({ code: 0, signal: null })
  })
})
