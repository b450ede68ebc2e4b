import { mkdirSync } from "node:fs"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { join } from "node:path"
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { assert, describe, it } from "@effect/vitest"
import { Array as Arr, Effect, Fiber, Layer, Option, Redacted, Schema, TestClock } from "effect"
import { version } from "../../../src/base/Version.ts"
import { Report } from "../../../src/Operations/Health/Api.ts"
import { endpoints } from "../../../src/Operations/Health/Endpoints.ts"
import * as Health from "../../../src/Operations/Health/Report.ts"
import * as Memory from "../../../src/Storage/Memory.ts"
import * as Replication from "../../../src/Storage/Sqlite/Replication.ts"
import { defaultUrl } from "../../../src/Upstream/Inference.ts"
import * as UpstreamClients from "../../../src/Upstream/UpstreamClients.ts"
import { edge } from "../../Http/Edge/EdgeTransport.ts"
import { serve } from "../../service/InProcess.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"
import * as Stub from "../../Upstream/Stub.ts"

const platformUrl = "http://platform.internal:9000"
const inferenceUrl = "http://inference.internal:9001"
const secret = Redacted.make("sesame")

const settings = (platform = Option.some(platformUrl), inferenceKey = Option.some(secret)) => ({
  agentPlatform: { url: platform, apiKey: Option.some(secret) },
  inference: { url: Option.isSome(inferenceKey) ? inferenceUrl : defaultUrl, apiKey: inferenceKey }
})

const layer = (upstreams = settings(), replication: Option.Option<{ readonly directory: string }> = Option.none()) =>
  Layer.provide(Health.layer(Option.toArray(replication).map(Replication.check)), [
    UpstreamClients.layer(upstreams),
    NodeFileSystem.layer
  ])

const report = Effect.flatMap(Health.Health, ({ report }) => report)

/** Answers as the upstream at an address does. */
const upstreams = (answers: Readonly<Record<string, ReturnType<typeof Stub.status>>>) =>
  Stub.make([
    request => {
      const answer = Object.entries(answers).find(([url]) => request.url.startsWith(url))
      return answer === undefined ? Effect.die(`unknown address ${request.url}`) : answer[1](request)
    }
  ])

const dependenciesOf = ({ dependencies }: Report, others: Record<string, unknown> = {}): Record<string, unknown> => ({
  ...others,
  ...Object.fromEntries(
    dependencies.map(({ name, status, error }) => [name, error === undefined ? status : [status, error]])
  )
})

describe("the health report", () => {
  it.effect("has all its fields, and probes what is configured", () =>
    Effect.gen(function* () {
      const { layer: client, seen } = upstreams({ [platformUrl]: Stub.status(200), [inferenceUrl]: Stub.status(200) })
      yield* Effect.gen(function* () {
        yield* TestClock.adjust("90 seconds")
        const found = yield* report
        const { memory, ...rest } = found
        assert.deepStrictEqual(rest, {
          status: "ok",
          uptime: 90_000,
          connections: 7,
          dependencies: [
            { name: "agent_platform", status: "ok", latencyMs: 0 },
            { name: "inference", status: "ok", latencyMs: 0 }
          ],
          version
        })
        for (const bytes of [memory.rss, memory.heapUsed, memory.heapTotal]) assert.isAbove(bytes, 0)
        assert.sameMembers(
          seen.map(({ url, method }) => `${method} ${url}`),
          [`GET ${platformUrl}/health`, `GET ${inferenceUrl}/health`]
        )
        assert.deepStrictEqual(yield* Schema.decodeUnknown(Report)(found), found)
      }).pipe(
        Effect.provide(layer()),
        Effect.provide(Layer.succeed(Health.Subscriptions, { count: Effect.succeed(7) })),
        Effect.provide(client)
      )
    })
  )

  it.effect("leaves out what is not configured", () =>
    Effect.gen(function* () {
      const { layer: client, seen } = upstreams({})
      const { dependencies, status } = yield* Effect.provide(
        report,
        Layer.provide(layer(settings(Option.none(), Option.none())), client)
      )
      assert.deepStrictEqual({ dependencies, status }, { dependencies: [], status: "ok" })
      assert.lengthOf(seen, 0)
    })
  )

  it.effect("classifies each probe, with a detail that names no address and no key", () =>
    Effect.gen(function* () {
      const outcome = (platform: ReturnType<typeof Stub.status>, inference: ReturnType<typeof Stub.status>) =>
        Effect.gen(function* () {
          const { layer: client } = upstreams({ [platformUrl]: platform, [inferenceUrl]: inference })
          const fiber = yield* Effect.fork(Effect.provide(report, Layer.provide(layer(), client)))
          yield* TestClock.adjust("2 seconds")
          const found = yield* Fiber.join(fiber)
          assert.notMatch(JSON.stringify(found), /sesame|internal|:900[01]|http:/)
          return dependenciesOf(found, { status: found.status })
        })
      const ok = Stub.status(200)
      assert.deepStrictEqual(yield* outcome(ok, Stub.status(500, { error: "at http://db.internal with sesame" })), {
        status: "degraded",
        agent_platform: "ok",
        inference: ["degraded", "GET /health answered 500"]
      })
      assert.deepStrictEqual(yield* outcome(Stub.status(204), Stub.status(302, {}, { location: platformUrl })), {
        status: "degraded",
        agent_platform: ["degraded", "GET /health answered 204"],
        inference: ["degraded", "GET /health answered 302"]
      })
      assert.deepStrictEqual(yield* outcome(ok, Stub.refused), {
        status: "degraded",
        agent_platform: "ok",
        inference: ["unhealthy", "No connection (ECONNREFUSED)"]
      })
      assert.deepStrictEqual(yield* outcome(Stub.hanging, ok), {
        status: "unhealthy",
        agent_platform: ["unhealthy", "No answer within 2s"],
        inference: "ok"
      })
      // Both probes hang at once and the report comes after two seconds, not four.
      assert.deepStrictEqual((yield* outcome(Stub.hanging, Stub.hanging)).status, "unhealthy")
    })
  )

  it.effect("shares a probe among all callers within a second", () =>
    Effect.gen(function* () {
      const { layer: client, seen } = upstreams({
        [platformUrl]: Stub.late(300, Stub.status(200)),
        [inferenceUrl]: Stub.status(200)
      })
      yield* Effect.gen(function* () {
        const crowd = yield* Effect.fork(Effect.all(Arr.replicate(report, 50), { concurrency: "unbounded" }))
        yield* TestClock.adjust("300 millis")
        yield* Fiber.join(crowd)
        yield* TestClock.adjust("600 millis")
        const { dependencies } = yield* report
        assert.lengthOf(seen, 2)
        assert.deepInclude(dependencies, { name: "agent_platform", status: "ok", latencyMs: 300 })
        yield* TestClock.adjust("200 millis")
        const later = yield* Effect.fork(report)
        yield* TestClock.adjust("300 millis")
        yield* Fiber.join(later)
        assert.lengthOf(seen, 4)
      }).pipe(Effect.provide(Layer.provide(layer(), client)))
    })
  )

  it.effect("is not affected by an interrupted caller", () =>
    Effect.gen(function* () {
      const { layer: client, seen } = upstreams({ [platformUrl]: Stub.late(300, Stub.status(200)) })
      yield* Effect.gen(function* () {
        const leaving = yield* Effect.fork(report)
        yield* TestClock.adjust("100 millis")
        const staying = yield* Effect.fork(report)
        yield* TestClock.adjust("100 millis")
        yield* Fiber.interrupt(leaving)
        yield* TestClock.adjust("100 millis")
        assert.strictEqual((yield* Fiber.join(staying)).status, "ok")
        assert.lengthOf(seen, 1)
      }).pipe(Effect.provide(Layer.provide(layer(settings(Option.some(platformUrl), Option.none())), client)))
    })
  )

  it.effect("reports replication if configured, and never as unhealthy", () =>
    Effect.gen(function* () {
      const { layer: client } = upstreams({ [platformUrl]: Stub.status(200) })
      const found = yield* Effect.provide(
        report,
        Layer.provide(
          layer(settings(Option.some(platformUrl), Option.none()), Option.some({ directory: "/nonexistent" })),
          client
        )
      )
      assert.deepInclude(found.dependencies, { name: "replication", status: "ok" })
    })
  )
})

describe("GET /health", () => {
  it.scoped("is 503 only if the report is unhealthy, and is not cached", () =>
    Effect.gen(function* () {
      const credentials = { credential: undefined, authorization: undefined, headers: {}, identity: undefined }
      const address = { method: "GET", url: "/health", target: "/health", remoteAddress: undefined }
      const incoming = { ...credentials, ...address, upgradeProblem: undefined, origin: undefined, host: undefined }
      const answer = (status: Report["status"]) =>
        Effect.flatMap(endpoints, handlers => handlers.status({ incoming })).pipe(
          Effect.provideService(Health.Health, {
            report: Effect.succeed({
              status,
              uptime: 1,
              connections: 0,
              memory: { rss: 1, heapUsed: 1, heapTotal: 1 },
              dependencies: [],
              version
            })
          }),
          Effect.provide(Memory.layer)
        )
      for (const [status, code] of [
        ["ok", 200],
        ["degraded", 200],
        ["unhealthy", 503]
      ] as const) {
        const reply = yield* answer(status)
        assert.strictEqual(reply.status, code)
        assert.strictEqual(reply.headers["cache-control"], "no-store")
        assert.strictEqual(JSON.parse(String(reply.body)).status, status)
      }
    })
  )

  it.scopedLive("answers without credentials, HEAD too, at the socket", () =>
    Effect.gen(function* () {
      const { url } = yield* edge.serve(Memory.layer)
      const response = yield* Effect.promise(() => fetch(`${url}/health`))
      assert.strictEqual(response.status, 200)
      assert.strictEqual(response.headers.get("content-type"), "application/json")
      const body: unknown = yield* Effect.promise(() => response.json())
      assert.strictEqual((yield* Schema.decodeUnknown(Report)(body)).status, "ok")
      assert.strictEqual((yield* Effect.promise(() => fetch(`${url}/health`, { method: "HEAD" }))).status, 200)
      assert.strictEqual((yield* Effect.promise(() => fetch(`${url}/health`, { method: "POST" }))).status, 405)
    })
  )

  it.scopedLive("probes real servers: redirects are not followed, and a stopped one is unhealthy", () =>
    Effect.gen(function* () {
      const asked: Array<string> = []
      const server = yield* Effect.acquireRelease(
        Effect.async<ReturnType<typeof createServer>>(resume => {
          const server = createServer((request, response) => {
            asked.push(`${request.url} ${request.headers.authorization}`)
            response.writeHead(302, { location: "/elsewhere" }).end()
          })
          server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
        }),
        server => Effect.sync(() => server.close())
      )
      const platform = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
      const looked = () =>
        Effect.provide(
          report,
          Layer.provide(layer(settings(Option.some(platform), Option.none())), NodeHttpClient.layerUndici)
        )
      assert.deepStrictEqual(dependenciesOf(yield* looked()), {
        agent_platform: ["degraded", "GET /health answered 302"]
      })
      assert.deepStrictEqual(asked, ["/health Bearer sesame"])
      yield* Effect.async<void>(resume => {
        server.closeAllConnections()
        server.close(() => resume(Effect.void))
      })
      assert.deepStrictEqual(dependenciesOf(yield* looked()), {
        agent_platform: ["unhealthy", "No connection (ECONNREFUSED)"]
      })
    })
  )

  it.scopedLive("of the service reports the upstreams and the replication of its environment", () =>
    Effect.gen(function* () {
      const ask = (env: Readonly<Record<string, string>>) =>
        Effect.gen(function* () {
          const { url } = yield* serve({ KV_API_KEY: "sesame", REPLICATION_ENABLED: "true", ...env })
          const answer = Effect.gen(function* () {
            const response = yield* Effect.promise(() => fetch(`${url}/health`))
            const body = yield* Schema.decodeUnknown(Report)(yield* Effect.promise(() => response.json()))
            return { body, status: response.status }
          })
          // On a machine that is slow enough a probe of a process that has just started exceeds its time limit.
          const { body, status } = yield* Effect.repeat(Effect.delay(answer, "100 millis"), {
            until: ({ body }) => body.dependencies.every(({ error }) => error !== "No answer within 2s")
          })
          return dependenciesOf(body, { code: status, status: body.status })
        }).pipe(Effect.scoped)
      const directory = yield* temporaryDirectory
      assert.deepStrictEqual(
        yield* ask({ DATA_DIR: directory, AGENT_PLATFORM_URL: "http://127.0.0.1:1", INFERENCE_API_KEY: "sesame" }),
        {
          code: 503,
          status: "unhealthy",
          agent_platform: ["unhealthy", "No connection (ECONNREFUSED)"],
          inference: ["unhealthy", "No connection (ECONNREFUSED)"],
          replication: ["degraded", "The data directory has databases and no replication metadata"]
        }
      )
      mkdirSync(join(directory, ".kv.db-litestream", "ltx"), { recursive: true })
      assert.deepStrictEqual(yield* ask({ DATA_DIR: directory }), { code: 200, status: "ok", replication: "ok" })
    })
  )
})
