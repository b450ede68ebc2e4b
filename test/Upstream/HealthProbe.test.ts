import { createServer } from "node:http"
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { describe, expect, it } from "@effect/vitest"
import { Context, Effect, Either, Fiber, Layer, Option, TestClock } from "effect"
import * as AgentPlatformClient from "../../src/Upstream/AgentPlatform/AgentPlatformClient.ts"
import * as PlatformSocket from "../../src/Upstream/AgentPlatform/PlatformSocket.ts"
import { AgentPlatform } from "../../src/Upstream/AgentPlatform.ts"
import { until } from "../Kv/ChangeFeed/Harness.ts"
import { listening } from "../Listening.ts"
import { test } from "../Tests.ts"
import { asked, finish, withPlatform } from "./Platform.ts"
import * as Stub from "./Stub.ts"

describe("probe", () => {
  const probe = (stub: ReturnType<typeof Stub.make>) =>
    withPlatform(stub, platform => finish(platform.probe)).pipe(
      Effect.map(Either.getOrThrow),
      Effect.map(Option.getOrThrow)
    )

  test.effect("200 is ok, another status degraded, no connection and no answer within 2 s unhealthy", function* () {
    const ok = Stub.make([Stub.late(150, Stub.status(200))])
    expect(yield* probe(ok)).toEqual({ status: "ok", statusCode: 200, latencyMs: 150 })
    expect(ok.seen[0]).toMatchObject({ method: "GET", url: "http://platform.test/base/health" })
    for (const code of [204, 302, 404, 500, 503]) {
      expect(yield* probe(Stub.make([Stub.status(code, "")]))).toEqual({
        status: "degraded",
        statusCode: code,
        latencyMs: 0,
        error: `GET /health answered ${code}`
      })
    }
    expect(yield* probe(Stub.make([Stub.refused]))).toMatchObject({
      status: "unhealthy",
      error: expect.stringContaining("ECONNREFUSED")
    })
    expect(yield* probe(Stub.make([Stub.hanging]))).toEqual({
      status: "unhealthy",
      latencyMs: 2000,
      error: "No answer within 2s"
    })
    expect(yield* probe(Stub.make([Stub.late(1999, Stub.status(200))]))).toMatchObject({ status: "ok" })
  })

  it.effect("returns the latency in whole milliseconds", () =>
    withPlatform(Stub.make([Stub.late(149.6, Stub.status(200))]), platform =>
      Effect.gen(function* () {
        const probing = yield* Effect.fork(platform.probe)
        yield* TestClock.adjust(149.6)
        yield* TestClock.adjust("1 second")
        expect(yield* Fiber.join(probing)).toMatchObject({ value: { latencyMs: 150 } })
      })
    )
  )

  test.scopedLive("leaves no answer open whose body never comes", function* () {
    let open = 0
    let ended = 0
    const server = createServer((_request, response) => {
      open++
      response.on("close", () => {
        open--
        ended++
      })
      response.writeHead(503, { "content-length": "100" })
      response.write("{")
    })
    const port = yield* listening(server)
    const context = yield* Layer.build(
      AgentPlatformClient.layer({ url: Option.some(`http://127.0.0.1:${port}`), apiKey: Option.none() }).pipe(
        Layer.provide([NodeHttpClient.layerUndici, PlatformSocket.layer({})])
      )
    )
    const platform = Context.get(context, AgentPlatform)
    expect(yield* platform.probe).toMatchObject({ value: { status: "degraded", statusCode: 503 } })
    yield* until(() => ended === 1 && open === 0)
  })

  asked(
    "is shared by callers within a second",
    [Stub.late(500, Stub.status(200))],
    function* ({ platform: { probe }, stub }) {
      for (const requests of [1, 2]) {
        const probes = yield* Effect.fork(Effect.all([probe, probe], { concurrency: 2 }))
        yield* TestClock.adjust("1 second")
        expect((yield* Fiber.join(probes))[1]).toMatchObject({ value: { status: "ok", latencyMs: 500 } })
        expect(stub.seen).toHaveLength(requests)
      }
    }
  )

  asked("goes past an open breaker and counts for nothing there", [Stub.refused], function* ({ platform, stub }) {
    const read = platform.readFile("i-1", "a")
    for (let i = 0; i < 10; i++) {
      yield* TestClock.adjust("1 second")
      expect(yield* platform.probe).toMatchObject({ value: { status: "unhealthy" } })
    }
    // Ten failed probes have not opened it; five failed tries do.
    expect(Either.getLeft(yield* finish(read))).toMatchObject({ value: { reason: "connection" } })
    const second = yield* Effect.fork(Effect.either(read))
    yield* TestClock.adjust("1 second")
    expect(Either.getLeft(yield* Fiber.join(second))).toMatchObject({ value: { reason: "connection" } })
    const sent = stub.seen.length
    expect(yield* Effect.flip(read)).toMatchObject({ reason: "circuit_open" })
    expect(yield* platform.probe).toMatchObject({ value: { status: "unhealthy" } })
    expect(stub.seen).toHaveLength(sent + 1)
  })
})
