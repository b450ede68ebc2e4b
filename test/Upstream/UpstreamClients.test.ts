import { createServer } from "node:http"
import * as FetchHttpClient from "@effect/platform/FetchHttpClient"
import type * as HttpClient from "@effect/platform/HttpClient"
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { describe, expect, it } from "@effect/vitest"
import { Array as Arr, Chunk, Context, Effect, Either, Fiber, Layer, Option, Redacted, Schedule, Stream } from "effect"
import * as Simulator from "../../src/Simulator/Simulator.ts"
import { AgentPlatform } from "../../src/Upstream/AgentPlatform.ts"
import { Inference } from "../../src/Upstream/Inference.ts"
import * as UpstreamClients from "../../src/Upstream/UpstreamClients.ts"
import { given } from "../Given.ts"
import { listening } from "../Listening.ts"
import { test } from "../Tests.ts"
import { eventsOf, stateOf } from "./Platform.ts"

const secret = Redacted.make("secret")

/** Clients of an agent platform and of an inference service, without a key unless it is given. */
const clientsAt = (
  platformUrl: Option.Option<string>,
  inferenceUrl: string,
  apiKey: Option.Option<Redacted.Redacted> = Option.none(),
  client: Layer.Layer<HttpClient.HttpClient> = NodeHttpClient.layerUndici
) =>
  Layer.build(
    Layer.provide(
      UpstreamClients.layer({
        agentPlatform: { url: platformUrl, apiKey },
        inference: { url: inferenceUrl, apiKey }
      }),
      client
    )
  ).pipe(
    Effect.map(context => ({
      platform: Context.get(context, AgentPlatform),
      inference: Context.get(context, Inference)
    }))
  )

/** A simulator and clients for it, until the scope ends. */
const start = (options: Simulator.Options = {}, client?: Layer.Layer<HttpClient.HttpClient>) =>
  Effect.gen(function* () {
    const simulator = yield* Simulator.make({ platformKey: secret, inferenceKey: secret, seed: "seed", ...options })
    const { inferenceUrl, platformUrl } = simulator
    return { simulator, ...(yield* clientsAt(Option.some(platformUrl), inferenceUrl, Option.some(secret), client)) }
  })

const simulated = given(it.scopedLive, (options?: Simulator.Options) => start(options))

const instance = { agentType: "coder", deployment: {}, secrets: { TOKEN: secret }, environment: {} }

const text = "Écho de «hi» 回声 🌊"

const clients = {
  undici: NodeHttpClient.layerUndici,
  "node:http": NodeHttpClient.layer,
  fetch: FetchHttpClient.layer
}

for (const [name, client] of Object.entries(clients)) {
  describe(`over real sockets by ${name}`, () => {
    test.scopedLive("instances are created, used and stopped", function* () {
      const { platform, simulator } = yield* start({}, client)
      const id = yield* platform.create(instance)
      expect((yield* simulator.state).instances).toMatchObject([{ id, agentType: "coder", secretNames: ["TOKEN"] }])
      expect(yield* platform.listFiles(id, { depth: 2 })).toContainEqual(
        expect.objectContaining({ path: "src/main.ts", type: "file" })
      )
      expect(yield* platform.readFile(id, "src/main.ts")).toMatchObject({ content: 'console.log("hello")\n' })
      expect((yield* platform.fileHistory(id, "README.md")).map(({ iteration }) => iteration)).toEqual([1])
      expect(yield* platform.fileAtIteration(id, "assets/pixel.gif", 1)).toMatchObject({ encoding: "base64" })
      expect(yield* Effect.flip(platform.readFile(id, "missing"))).toMatchObject({ statusCode: 404 })
      expect(yield* platform.probe).toMatchObject({ value: { status: "ok" } })
      yield* platform.stop(id)
      yield* platform.stop(id)
      expect((yield* simulator.state).instances).toEqual([])
    })

    test.scopedLive("text is generated, as events and plain", function* () {
      for (const format of ["sse", "text"] as const) {
        const { inference } = yield* start({ format }, client)
        expect(yield* inference.generate({ prompt: "hi" })).toContain(text)
        expect(yield* inference.health).toBe(true)
      }
    })

    test.scopedLive("a consumer who leaves ends the upstream's work", function* () {
      let closed = false
      const url = yield* serve((_, response) => {
        response.writeHead(200, { "content-type": "text/plain" })
        response.write("a")
        response.on("close", () => {
          closed = true
        })
      })
      const { generateStream } = yield* inferenceAt(url, client)
      expect(Chunk.toReadonlyArray(yield* Stream.runCollect(Stream.take(generateStream({ prompt: "hi" }), 1)))).toEqual(
        ["a"]
      )
      yield* until(() => closed)
      closed = false
      const fiber = yield* Effect.fork(Stream.runDrain(generateStream({ prompt: "hi" })))
      yield* Effect.zipRight(Effect.yieldNow(), Fiber.interrupt(fiber))
      expect(yield* Stream.runCollect(Stream.take(generateStream({ prompt: "hi" }), 1))).toHaveLength(1)
      yield* until(() => closed)
    })

    test.scopedLive("kept-alive connections that the service closes behind each answer cost no call", function* () {
      let calls = 0
      const url = yield* serve((request, response) => {
        calls++
        // The client is promised that the connection lives on, and finds it gone.
        response.once("close", () => request.socket.destroy())
        response.writeHead(200, { "content-type": "application/json", connection: "keep-alive" }).end("[]")
      })
      const { platform } = yield* clientsAt(Option.some(url), url, undefined, client)
      for (let call = 0; call < 20; call++) expect(yield* platform.listFiles("i-1", {})).toEqual([])
      expect(calls).toBeGreaterThanOrEqual(20)
    })

    test.scopedLive("redirects are not followed, not even with a credential to steal", function* () {
      let stolen = false
      const thief = yield* serve((_, response) => {
        stolen = true
        response.end()
      })
      const url = yield* serve((_, response) => response.writeHead(307, { location: thief }).end())
      const { generate, probe } = yield* inferenceAt(url, client)
      expect(yield* Effect.flip(generate({ prompt: "hi" }))).toMatchObject({ statusCode: 307 })
      expect(yield* probe).toMatchObject({ value: { status: "degraded", statusCode: 307 } })
      expect(stolen).toBe(false)
    })
  })
}

describe("faults over real sockets", () => {
  test.scopedLive("a stream that is cut fails after what came, and is not asked for again", function* () {
    for (const format of ["sse", "text"] as const) {
      const { inference, simulator } = yield* start({ format })
      yield* simulator.inject({ operation: "generate", fault: { kind: "drop", after: 60 } })
      const pieces = yield* inference
        .generateStream({ prompt: "/long 1000" })
        .pipe(Stream.either, Stream.runCollect, Effect.map(Chunk.toReadonlyArray))
      expect(pieces.filter(Either.isRight).length).toBeGreaterThan(0)
      expect(pieces.at(-1)).toMatchObject({ left: { _tag: "InferenceError", statusCode: 502 } })
      expect((yield* simulator.state).requests.generate).toBe(1)
    }
  })
})

describe("connections to instances over real sockets", () => {
  simulated("miss nothing and see nothing twice through any number of drops", function* ({ platform, simulator }) {
    const id = yield* platform.create(instance)
    yield* simulator.inject({ operation: "connect", times: 10, fault: { kind: "drop", after: 7 } })
    const connection = yield* platform.connect(id)
    const states = yield* Effect.fork(
      Stream.runCollect(Stream.takeUntil(connection.states, is => is === "reconnecting"))
    )
    yield* connection.send({ type: "message", content: "/long 100", turnId: "t-1" })
    const ids = yield* eventsOf(connection).pipe(
      Stream.takeUntil(({ type }) => type === "turn.completed"),
      Stream.map(({ id }) => id),
      Stream.runCollect,
      Effect.map(Chunk.toReadonlyArray)
    )
    expect(new Set(ids).size).toBe(ids.length)
    const again = yield* platform.connect(id)
    const all = yield* eventsOf(again).pipe(
      Stream.take(ids.length),
      Stream.map(({ id }) => id),
      Stream.runCollect,
      Effect.map(Chunk.toReadonlyArray)
    )
    expect(ids).toEqual(all)
    expect(ids.length).toBeGreaterThan(70)
    expect(Chunk.toReadonlyArray(yield* Fiber.join(states))).toEqual(["connected", "reconnecting"])
    const resumed = yield* platform.connect(id, { after: ids[4] })
    expect(yield* Stream.runHead(eventsOf(resumed))).toMatchObject({ value: { id: ids[5] } })
  })

  simulated(
    "end when the instance is reclaimed, and fail where there is none or no credential",
    function* ({ platform, simulator }) {
      const id = yield* platform.create(instance)
      const connection = yield* platform.connect(id)
      const fiber = yield* Effect.fork(Stream.runDrain(eventsOf(connection)))
      yield* simulator.reclaim(id)
      yield* Fiber.join(fiber)
      expect(yield* stateOf(connection)).toBe("closed")
      expect(yield* Effect.flip(Effect.scoped(platform.connect(id)))).toMatchObject({
        statusCode: 404,
        operation: "connect"
      })
      expect(yield* Effect.flip(Effect.scoped(platform.connect("nobody")))).toMatchObject({ statusCode: 404 })
      const strangers = yield* clientsAt(Option.some(simulator.platformUrl), simulator.inferenceUrl)
      expect(yield* Effect.flip(Effect.scoped(strangers.platform.connect(id)))).toMatchObject({ statusCode: 401 })
    }
  )

  simulated(
    "hold back a platform that is faster than the consumer",
    { limits: { history: 100_000, stall: "1 minute" } },
    function* ({ platform, simulator }) {
      const id = yield* platform.create(instance)
      const connection = yield* platform.connect(id)
      const big = "x".repeat(100_000)
      yield* Effect.forEach(Arr.range(1, 500), n => simulator.emit(id, { type: "log", n, big }), { discard: true })
      const numbers = yield* eventsOf(connection).pipe(
        Stream.filter(({ type }) => type === "log"),
        Stream.take(500),
        Stream.map(({ payload }) => payload.n),
        Stream.runCollect
      )
      expect(Chunk.toReadonlyArray(numbers)).toEqual(Arr.range(1, 500))
    }
  )
})

const serve = (handler: Parameters<typeof createServer>[1] & {}) =>
  Effect.map(listening(createServer(handler)), port => `http://127.0.0.1:${port}`)

const inferenceAt = (url: string, client: Layer.Layer<HttpClient.HttpClient>) =>
  Effect.map(clientsAt(Option.none(), url, Option.some(secret), client), ({ inference }) => inference)

const until = (condition: () => boolean) =>
  Effect.suspend(() => (condition() ? Effect.void : Effect.fail("not yet"))).pipe(
    Effect.retry(Schedule.spaced("5 millis"))
  )
