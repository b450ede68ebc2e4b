import { describe, expect, it } from "@effect/vitest"
import { Effect, Either, Fiber, FastCheck as fc, Layer, Metric, Option, Redacted, TestClock } from "effect"
import { AgentPlatform, type FileCallError } from "../../src/Upstream/AgentPlatform.ts"
import * as AgentPlatformClient from "../../src/Upstream/AgentPlatformClient.ts"
import * as FilePath from "../../src/Upstream/FilePath.ts"
import * as PlatformSocket from "../../src/Upstream/PlatformSocket.ts"
import * as Stub from "./Stub.ts"

const settings = { url: Option.some("http://platform.test/base"), apiKey: Option.some(Redacted.make("key")) }

const withPlatform = <A, E>(
  stub: ReturnType<typeof Stub.make>,
  use: (platform: typeof AgentPlatform.Service) => Effect.Effect<A, E>,
  options = settings
) =>
  Effect.flatMap(AgentPlatform, use).pipe(
    Effect.provide(AgentPlatformClient.layer(options)),
    Effect.provide(Layer.merge(stub.layer, PlatformSocket.layer))
  )

const instance = {
  agentType: "coder",
  deployment: { region: "eu" },
  secrets: { TOKEN: Redacted.make("s3cret") },
  environment: { LANG: "C" }
}

/** Lets waits and limits pass. */
const finish = <A, E>(effect: Effect.Effect<A, E>) =>
  Effect.gen(function* () {
    const fiber = yield* Effect.fork(Effect.either(effect))
    yield* TestClock.adjust("5 minutes")
    return yield* Fiber.join(fiber)
  })

const content = { content: "hello", encoding: "utf-8", iteration: 3, size: 5, hash: "h" }

describe("create", () => {
  it.effect("sends what the instance is made from, with one key for all its tries", () =>
    Effect.gen(function* () {
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
  )

  it.effect("has another key for each call, or the caller's", () =>
    Effect.gen(function* () {
      const stub = Stub.make([Stub.status(201, { id: "i-2" })])
      yield* withPlatform(stub, platform =>
        Effect.gen(function* () {
          expect(yield* platform.create(instance)).toBe("i-2")
          yield* platform.create(instance)
          yield* platform.create({ ...instance, idempotencyKey: "mine" })
        })
      )
      const keys = stub.seen.map(({ headers }) => headers["idempotency-key"])
      expect(new Set(keys).size).toBe(3)
      expect(keys[2]).toBe("mine")
    })
  )

  it.effect("refuses ids that could not be put into a path, and tells no secrets of a malformed answer", () =>
    Effect.gen(function* () {
      for (const body of [{ instanceId: ".." }, { instanceId: "" }, { secret: "s3cret" }, [], "<html>s3cret</html>"]) {
        const stub = Stub.make([Stub.status(200, body)])
        const result = yield* withPlatform(stub, platform => finish(platform.create(instance)))
        expect(Either.getLeft(result)).toMatchObject({ value: { reason: "malformed", operation: "create" } })
        expect(JSON.stringify(result)).not.toContain("s3cret")
        expect(stub.seen).toHaveLength(1)
      }
    })
  )
})

describe("stop", () => {
  it.effect("takes 404 for success, also on a second try, and without harm to the breaker", () =>
    Effect.gen(function* () {
      const stub = Stub.make([Stub.refused, Stub.status(404)])
      expect(yield* withPlatform(stub, platform => finish(platform.stop("i/1")))).toEqual(Either.right(undefined))
      expect(stub.seen.map(({ method, url }) => `${method} ${url}`)).toEqual(
        Array(2).fill("DELETE http://platform.test/base/api/v1/instances/i%2F1")
      )
    })
  )

  it.effect("fails at other refusals with what the platform says", () =>
    Effect.gen(function* () {
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
  )
})

describe("file calls", () => {
  it.effect("ask for what they are named after", () =>
    Effect.gen(function* () {
      const iterations = [
        { iteration: 2, timestamp: 20, size: 1, hash: "b" },
        { iteration: 1, timestamp: 10, size: 1, hash: "a" }
      ]
      const entries = [
        { path: "a b", type: "file", size: 1 },
        { path: "d", type: "directory" }
      ]
      const stub = Stub.make([
        Stub.status(200, { entries }),
        Stub.status(200, entries),
        Stub.status(200, { path: "a", ...content }),
        Stub.status(200, { iterations }),
        Stub.status(200, { content: "aGk=", encoding: "base64" })
      ])
      yield* withPlatform(stub, platform =>
        Effect.gen(function* () {
          expect(yield* platform.listFiles("i-1")).toEqual(entries)
          expect(yield* platform.listFiles("i-1", { path: "src/ä&b", depth: 2 })).toEqual(entries)
          expect(yield* platform.readFile("i-1", "src/a b?#%.ts")).toEqual(content)
          expect((yield* platform.fileHistory("i-1", "a")).map(({ iteration }) => iteration)).toEqual([1, 2])
          expect(yield* platform.fileAtIteration("i-1", "日本.txt", 7)).toEqual({ content: "aGk=", encoding: "base64" })
        })
      )
      const base = "http://platform.test/base/api/v1/instances/i-1/files"
      expect(stub.seen.map(({ method, url }) => `${method} ${url}`)).toEqual([
        `GET ${base}`,
        `GET ${base}?path=src%2F%C3%A4%26b&depth=2`,
        `GET ${base}/src%2Fa%20b%3F%23%25.ts`,
        `GET ${base}/a/history`,
        `GET ${base}/%E6%97%A5%E6%9C%AC.txt/at/7`
      ])
    })
  )

  it.effect("refuse bad paths and numbers before any call", () =>
    Effect.gen(function* () {
      const stub = Stub.make([Stub.status(200, content)])
      yield* withPlatform(stub, platform =>
        Effect.gen(function* () {
          const bad = [
            "",
            "/etc/passwd",
            "a/../b",
            "..",
            "a\\..\\b",
            "\\\\host\\share",
            "C:\\x",
            "a\0b",
            "\ud800",
            "a".repeat(2049)
          ]
          const calls = bad.flatMap(
            (path): ReadonlyArray<Effect.Effect<unknown, FileCallError>> => [
              platform.listFiles("i-1", { path }),
              platform.readFile("i-1", path),
              platform.fileHistory("i-1", path),
              platform.fileAtIteration("i-1", path, 1)
            ]
          )
          const more = [
            platform.readFile("i-1", "."),
            platform.fileAtIteration("i-1", "a", -1),
            platform.fileAtIteration("i-1", "a", 1.5),
            platform.listFiles("i-1", { depth: Number.NaN })
          ]
          for (const call of [...calls, ...more]) {
            expect((yield* Effect.flip(call))._tag).toBe("InvalidFileRequest")
          }
          expect((yield* Effect.flip(platform.readFile("i-1", "a/../b"))).message).toBe(
            'The file path holds a ".." segment'
          )
        })
      )
      expect(stub.seen).toHaveLength(0)
    })
  )

  it("any path that is accepted comes out of its segment as it was, and stays one segment", () => {
    const path = fc.oneof(fc.string({ unit: "binary" }), fc.stringMatching(/^[a./\\%?#:]{0,8}$/))
    fc.assert(
      fc.property(path, path => {
        const segment = FilePath.toSegment(path)
        if (Either.isLeft(segment)) return
        const url = new URL(`http://platform.test/files/${segment.right}/history`)
        const parts = url.pathname.split("/")
        expect(parts).toHaveLength(4)
        expect(decodeURIComponent(parts[2]!)).toBe(path)
        expect(path.split("/")).not.toContain("..")
      }),
      { numRuns: 500 * Number(process.env.SOAK ?? 1) }
    )
  })

  it.effect("take an answer that comes within 15 s, and give up after 15 s", () =>
    Effect.gen(function* () {
      const slow = Stub.make([Stub.late(14_999, Stub.status(200, content))])
      expect(yield* withPlatform(slow, platform => finish(platform.readFile("i-1", "a")))).toEqual(
        Either.right(content)
      )

      const dead = Stub.make([Stub.hanging])
      yield* withPlatform(dead, platform =>
        Effect.gen(function* () {
          const fiber = yield* Effect.fork(Effect.flip(platform.readFile("i-1", "a")))
          yield* TestClock.adjust("14999 millis")
          expect(yield* Fiber.poll(fiber)).toEqual(Option.none())
          yield* TestClock.adjust("1 millis")
          expect(yield* Fiber.join(fiber)).toMatchObject({
            _tag: "AgentPlatformConnectionError",
            reason: "timeout",
            message: "No answer to read_file within 15s"
          })
          expect(dead.seen).toHaveLength(1)
          expect(dead.seen[0]!.isAborted()).toBe(true)
        })
      )
    })
  )

  it.effect("spend no more than 15 s on all their tries together", () =>
    Effect.gen(function* () {
      const stub = Stub.make([Stub.late(7000, Stub.status(503)), Stub.hanging])
      yield* withPlatform(stub, platform =>
        Effect.gen(function* () {
          const fiber = yield* Effect.fork(Effect.flip(platform.readFile("i-1", "a")))
          yield* TestClock.adjust("15 seconds")
          expect(yield* Fiber.join(fiber)).toMatchObject({ reason: "timeout" })
          expect(stub.seen).toHaveLength(2)
        })
      )
    })
  )

  it.effect("take no answer longer than allowed, which opens no breaker", () =>
    Effect.gen(function* () {
      const stub = Stub.make([Stub.status(200, content, { "content-length": String(64 * 1024 * 1024) })])
      yield* withPlatform(stub, platform =>
        Effect.gen(function* () {
          for (let i = 0; i < 10; i++) {
            expect(yield* Effect.flip(platform.readFile("i-1", "a"))).toMatchObject({ reason: "too_large" })
          }
        })
      )
      expect(stub.seen).toHaveLength(10)
      expect(stub.seen.every(({ isAborted }) => isAborted())).toBe(true)
    })
  )

  it.effect("take nothing but what a schema takes, and an open breaker sends nothing", () =>
    Effect.gen(function* () {
      const stub = Stub.make([
        Stub.status(200, "not JSON"),
        Stub.status(200, { content: 5 }),
        Stub.status(200, ""),
        Stub.status(204),
        Stub.status(200, null)
      ])
      yield* withPlatform(stub, platform =>
        Effect.gen(function* () {
          for (let i = 0; i < 5; i++) {
            expect(yield* Effect.flip(platform.readFile("i-1", "a"))).toMatchObject({ reason: "malformed" })
          }
          expect(yield* Effect.flip(platform.readFile("i-1", "a"))).toMatchObject({
            _tag: "AgentPlatformConnectionError",
            reason: "circuit_open",
            statusCode: 503
          })
        })
      )
      expect(stub.seen).toHaveLength(5)
    })
  )

  it.effect("follow no redirects", () =>
    Effect.gen(function* () {
      const stub = Stub.make([Stub.status(302, "", { location: "http://elsewhere.test/" })])
      const result = yield* withPlatform(stub, platform => finish(platform.readFile("i-1", "a")))
      expect(Either.getLeft(result)).toMatchObject({ value: { reason: "status", statusCode: 302 } })
      expect(stub.seen).toHaveLength(1)
    })
  )

  it.effect("send the trace along while there is one, and nothing while tracing is off", () =>
    Effect.gen(function* () {
      const stub = Stub.make([Stub.status(200, content)])
      yield* withPlatform(stub, platform =>
        Effect.gen(function* () {
          const span = yield* Effect.currentSpan
          yield* platform.readFile("i-1", "a")
          expect(stub.seen[0]!.headers.traceparent).toMatch(new RegExp(`^00-${span.traceId}-[0-9a-f]{16}-01$`))
        }).pipe(Effect.withSpan("outer"))
      )
      yield* withPlatform(stub, platform => platform.readFile("i-1", "a")).pipe(Effect.withTracerEnabled(false))
      expect(stub.seen[1]!.headers.traceparent).toBeUndefined()
    })
  )

  it.effect("are measured in the platform's histogram", () =>
    Effect.gen(function* () {
      const stub = Stub.make([Stub.late(300, Stub.status(200, content))])
      yield* withPlatform(stub, platform => finish(platform.fileAtIteration("i-1", "a", 1)))
      const snapshot = yield* Metric.snapshot
      const pair = snapshot.find(
        ({ metricKey: { name, tags } }) =>
          name === "agent_platform_request_duration_ms" &&
          tags.some(({ key, value }) => key === "operation" && value === "file_at_iteration") &&
          tags.some(({ key, value }) => key === "outcome" && value === "ok")
      )
      expect(pair?.metricState).toMatchObject({ max: 300 })
    })
  )
})

describe("connect", () => {
  /** Sockets that are refused, and the handshakes that were asked for. */
  const refusing = (refused: PlatformSocket.SocketRefused) => {
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

  it.effect("dials the instance with the bearer, the trace and the event to resume after", () =>
    Effect.gen(function* () {
      const { connect, seen } = refusing(new PlatformSocket.SocketRefused({ statusCode: 404, message: "gone" }))
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
  )

  it.effect("retries the first connection like any call, and an open breaker keeps it from being tried", () =>
    Effect.gen(function* () {
      const { connect, seen } = refusing(new PlatformSocket.SocketRefused({ message: "ECONNREFUSED" }))
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
    })
  )
})

describe("without AGENT_PLATFORM_URL", () => {
  it.effect("every call says so, and there is nothing to probe", () =>
    Effect.gen(function* () {
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
  )
})

describe("probe", () => {
  const probe = (stub: ReturnType<typeof Stub.make>) =>
    withPlatform(stub, platform => finish(platform.probe)).pipe(
      Effect.map(Either.getOrThrow),
      Effect.map(Option.getOrThrow)
    )

  it.effect("200 is ok, another status degraded, no connection and no answer within 2 s unhealthy", () =>
    Effect.gen(function* () {
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
  )

  it.effect("is shared by callers within a second, of whom the first may leave", () =>
    Effect.gen(function* () {
      const stub = Stub.make([Stub.late(500, Stub.status(200))])
      yield* withPlatform(stub, ({ probe }) =>
        Effect.gen(function* () {
          const first = yield* Effect.fork(probe)
          yield* TestClock.adjust("100 millis")
          const others = yield* Effect.fork(
            Effect.replicateEffect(probe, 20).pipe(Effect.zip(probe, { concurrent: true }))
          )
          yield* TestClock.adjust("100 millis")
          yield* Fiber.interrupt(first)
          yield* TestClock.adjust("500 millis")
          expect((yield* Fiber.join(others))[1]).toMatchObject({ value: { status: "ok", latencyMs: 500 } })
          expect(stub.seen).toHaveLength(1)
          yield* TestClock.adjust("300 millis")
          const later = yield* Effect.fork(probe)
          yield* TestClock.adjust("500 millis")
          yield* Fiber.join(later)
          expect(stub.seen).toHaveLength(2)
        })
      )
    })
  )

  it.effect("goes past an open breaker and counts for nothing there", () =>
    Effect.gen(function* () {
      const stub = Stub.make([Stub.refused])
      yield* withPlatform(stub, platform =>
        Effect.gen(function* () {
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
      )
    })
  )
})
