import { describe, expect } from "@effect/vitest"
import { Effect, Either, Fiber, Layer, Option, TestClock } from "effect"
import * as AgentPlatformClient from "../../../src/Upstream/AgentPlatform/AgentPlatformClient.ts"
import * as PlatformSocket from "../../../src/Upstream/AgentPlatform/PlatformSocket.ts"
import { AgentPlatform } from "../../../src/Upstream/AgentPlatform.ts"
import { UpstreamFailure } from "../../../src/Upstream/Resilience/UpstreamFailure.ts"
import { test } from "../../Tests.ts"
import { asked, finish, instance, settings, withPlatform } from "../Platform.ts"
import * as Stub from "../Stub.ts"

describe("create", () => {
  test.effect("sends what the instance is made from, with one key for all its tries", function* () {
    const stub = Stub.make([Stub.status(503), Stub.refused, Stub.status(201, { instanceId: "i-1" })])
    expect(yield* withPlatform(stub, platform => finish(platform.create(instance)))).toEqual(Either.right("i-1"))
    expect(stub.seen).toHaveLength(3)
    expect(stub.seen[0]).toMatchObject({
      method: "POST",
      url: "http://platform.test/base/api/v1/instances",
      headers: { authorization: "Bearer key", accept: "application/json" },
      body: {
        agentType: "coder",
        deployment: { region: "eu" },
        secrets: { TOKEN: "s3cret" },
        environment: { LANG: "C" }
      }
    })
    const keys = new Set(stub.seen.map(({ headers }) => headers["idempotency-key"]))
    expect(keys.size).toBe(1)
    expect([...keys][0]).toMatch(/^[0-9a-f]{32}$/)
  })

  asked(
    "has another key for each call, or the caller's",
    [Stub.status(201, { id: "i-2" })],
    function* ({ platform, stub }) {
      expect(yield* platform.create(instance)).toBe("i-2")
      yield* platform.create(instance)
      yield* platform.create({ ...instance, idempotencyKey: "mine" })

      const keys = stub.seen.map(({ headers }) => headers["idempotency-key"])
      expect(new Set(keys).size).toBe(3)
      expect(keys[2]).toBe("mine")
    }
  )

  test.effect("says whether there may be an instance although it failed", function* () {
    const refusal = Stub.status(400, { error: "no such agent" })
    const cases: ReadonlyArray<readonly [Parameters<typeof Stub.make>[0], boolean]> = [
      [[refusal], false],
      [[Stub.status(429)], false],
      [[Stub.status(503), refusal], true],
      [[Stub.refused, refusal], true],
      [[() => Effect.never, refusal], true],
      [[Stub.status(200, {})], true]
    ]
    for (const [answers, isInDoubt] of cases) {
      const result = yield* withPlatform(Stub.make(answers), platform => finish(platform.create(instance)))
      expect(Either.getLeft(result)).toMatchObject({ value: { isInDoubt } })
    }
  })

  test.effect(
    "refuses ids that could not be put into a path, and reveals no secrets of a malformed answer",
    function* () {
      for (const body of [{ instanceId: ".." }, { instanceId: "" }, { secret: "s3cret" }, [], "<html>s3cret</html>"]) {
        const stub = Stub.make([Stub.status(200, body)])
        const result = yield* withPlatform(stub, platform => finish(platform.create(instance)))
        expect(Either.getLeft(result)).toMatchObject({ value: { reason: "malformed", operation: "create" } })
        expect(JSON.stringify(result)).not.toContain("s3cret")
        expect(stub.seen).toHaveLength(1)
      }
    }
  )
})

describe("stop", () => {
  test.effect("takes 404 for success, also on a second try, and without harm to the breaker", function* () {
    const stub = Stub.make([Stub.refused, Stub.status(404)])
    expect(yield* withPlatform(stub, platform => finish(platform.stop("i/1")))).toEqual(Either.right(undefined))
    expect(stub.seen.map(({ method, url }) => `${method} ${url}`)).toEqual(
      Array(2).fill("DELETE http://platform.test/base/api/v1/instances/i%2F1")
    )
  })

  test.effect("fails at other refusals with what the platform says", function* () {
    const stub = Stub.make([Stub.status(403, { error: "not yours" })])
    const result = yield* withPlatform(stub, platform => finish(platform.stop("i-1")))
    expect(Either.getLeft(result)).toMatchObject({
      value: {
        _tag: "AgentPlatformConnectionError",
        statusCode: 403,
        message: "The agent platform answered 403 to stop: not yours"
      }
    })
    expect(stub.seen).toHaveLength(1)
  })
})

describe("connect", () => {
  /** Sockets that are refused, and the handshakes that were asked for. */
  const refusing = (refused: UpstreamFailure) => {
    const seen: Array<{ readonly url: string; readonly headers: Readonly<Record<string, string>> }> = []
    const layer = Layer.succeed(PlatformSocket.PlatformSocket, {
      open: (url, headers) =>
        Effect.suspend(() => {
          seen.push({ url, headers })
          return refused
        })
    })
    const connect = <A, E>(use: (platform: typeof AgentPlatform.Service) => Effect.Effect<A, E>) =>
      Effect.flatMap(AgentPlatform, use).pipe(
        Effect.provide(AgentPlatformClient.layer(settings)),
        Effect.provide(Layer.merge(Stub.make([Stub.refused]).layer, layer))
      )
    return { seen, connect }
  }

  test.effect("dials the instance with the bearer, the trace and the event to resume after", function* () {
    const { connect, seen } = refusing(
      new UpstreamFailure({ operation: "connect", reason: "status", statusCode: 404, message: "gone" })
    )
    yield* connect(platform =>
      Effect.gen(function* () {
        const call = Effect.flip(Effect.scoped(platform.connect("i/1", { after: "e&1" })))
        expect(yield* call).toMatchObject({ reason: "status", statusCode: 404 })
        yield* Effect.withTracerEnabled(call, false)
      })
    )
    expect(seen).toEqual([
      {
        url: "ws://platform.test/base/api/v1/instances/i%2F1/connect?after=e%261",
        headers: {
          authorization: "Bearer key",
          traceparent: expect.stringMatching(/^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/)
        }
      },
      { url: seen[0]!.url, headers: { authorization: "Bearer key" } }
    ])
  })

  test.effect(
    "retries the first connection like any call, and an open breaker keeps it from being tried",
    function* () {
      const { connect, seen } = refusing(
        new UpstreamFailure({ operation: "connect", reason: "connection", message: "ECONNREFUSED" })
      )
      yield* connect(platform =>
        Effect.gen(function* () {
          const call = Effect.scoped(platform.connect("i"))
          expect(Either.getLeft(yield* finish(call))).toMatchObject({ value: { reason: "connection" } })
          expect(seen).toHaveLength(3)
          const second = yield* Effect.fork(Effect.flip(call))
          yield* TestClock.adjust("1 second")
          yield* Fiber.join(second)
          expect(seen).toHaveLength(5)
          expect(yield* Effect.flip(call)).toMatchObject({ reason: "circuit_open", statusCode: 503 })
          expect(seen).toHaveLength(5)
        })
      )
    }
  )
})

describe("without AGENT_PLATFORM_URL", () => {
  test.effect("every call says so, and there is nothing to probe", function* () {
    const stub = Stub.make([Stub.status(200)])
    yield* withPlatform(
      stub,
      platform =>
        Effect.gen(function* () {
          const error = { reason: "not_configured", message: expect.stringContaining("AGENT_PLATFORM_URL") }
          expect(yield* Effect.flip(platform.create(instance))).toMatchObject(error)
          expect(yield* Effect.flip(platform.readFile("i", "a"))).toMatchObject(error)
          expect(yield* Effect.flip(Effect.scoped(platform.connect("i")))).toMatchObject(error)
          expect(yield* platform.probe).toEqual(Option.none())
        }),
      { ...settings, url: Option.none() }
    )
    expect(stub.seen).toHaveLength(0)
  })
})
