import { mkdirSync } from "node:fs"
import { join } from "node:path"
import * as HttpApi from "@effect/platform/HttpApi"
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { assert, describe, expect, it } from "@effect/vitest"
import { Effect, Fiber, FastCheck as fc, Layer, Option, Redacted, Schema, TestClock } from "effect"
import { version } from "../../../src/base/Version.ts"
import { endpointsOf } from "../../../src/Http/Router.ts"
import {
  type Dependency,
  HealthGroup,
  HealthRoutes,
  overall,
  Report,
  Status
} from "../../../src/Operations/Health/Api.ts"
import { endpoints } from "../../../src/Operations/Health/Endpoints.ts"
import * as Health from "../../../src/Operations/Health/Report.ts"
import * as Memory from "../../../src/Storage/Memory.ts"
import { defaultUrl } from "../../../src/Upstream/Inference.ts"
import * as UpstreamClients from "../../../src/Upstream/UpstreamClients.ts"
import { read } from "../../Docs/Page.ts"
import { localServer } from "../../LocalServer.ts"
import { serve } from "../../service/InProcess.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"
import { test } from "../../Tests.ts"
import * as Stub from "../../Upstream/Stub.ts"

const platformUrl = "http://platform.internal:9000"
const inferenceUrl = "http://inference.internal:9001"
const secret = Redacted.make("sesame")

const settings = (platform = Option.some(platformUrl), inferenceKey = Option.some(secret)) => ({
  agentPlatform: { url: platform, apiKey: Option.some(secret) },
  inference: { url: Option.isSome(inferenceKey) ? inferenceUrl : defaultUrl, apiKey: inferenceKey }
})

const layer = (upstreams = settings()) => Layer.provide(Health.layer(), UpstreamClients.layer(upstreams))

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
  test.effect("has all its fields, and probes what is configured", function* () {
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

  test.effect("leaves out what is not configured", function* () {
    const { layer: client, seen } = upstreams({})
    const nothing = Layer.provide(layer(settings(Option.none(), Option.none())), client)
    const { dependencies, status } = yield* Effect.provide(report, nothing)
    assert.deepStrictEqual({ dependencies, status }, { dependencies: [], status: "ok" })
    assert.lengthOf(seen, 0)
  })

  test.effect("classifies each probe, with a detail that names no address and no key", function* () {
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
    const leaky = Stub.status(500, { error: "at http://db.internal with sesame" })
    const moved = Stub.status(302, {}, { location: platformUrl })
    for (const [platform, inference, status, ofPlatform, ofInference] of [
      [ok, leaky, "degraded", "ok", ["degraded", "GET /health answered 500"]],
      [
        Stub.status(204),
        moved,
        "degraded",
        ["degraded", "GET /health answered 204"],
        ["degraded", "GET /health answered 302"]
      ],
      [ok, Stub.refused, "degraded", "ok", ["unhealthy", "No connection (ECONNREFUSED)"]],
      [Stub.hanging, ok, "unhealthy", ["unhealthy", "No answer within 2s"], "ok"]
    ] as const) {
      const expected = { status, agent_platform: ofPlatform, inference: ofInference }
      assert.deepStrictEqual(yield* outcome(platform, inference), expected)
    }
    // Both probes hang at once and the report comes after two seconds, not four.
    assert.deepStrictEqual((yield* outcome(Stub.hanging, Stub.hanging)).status, "unhealthy")
  })
})

const statuses = fc.constantFrom(...Status.literals)

const dependencies: fc.Arbitrary<ReadonlyArray<Dependency>> = fc.uniqueArray(
  fc.record({ name: fc.constantFrom("agent_platform", "inference", "replication"), status: statuses }),
  { selector: ({ name }) => name }
)

describe("the overall status", () => {
  it("depends on the agent platform first, and not on the order", () => {
    fc.assert(
      fc.property(dependencies, all => {
        const agent = all.find(({ name }) => name === "agent_platform")?.status
        const expected =
          agent === "unhealthy" ? "unhealthy" : all.some(({ status }) => status !== "ok") ? "degraded" : "ok"
        assert.strictEqual(overall(all), expected)
        assert.strictEqual(overall([...all].reverse()), expected)
      })
    )
  })
})

describe("an upstream's error", () => {
  it("names the kind of failure and no address", () => {
    const detail = (error: string) => Health.detailOf({ error })
    assert.strictEqual(detail("No answer within 2s"), "No answer within 2s")
    const codes = {
      ECONNREFUSED: "No connection to the agent platform: connect ECONNREFUSED 10.1.2.3:8443",
      ENOTFOUND: "getaddrinfo ENOTFOUND platform.internal",
      ECONNRESET: "read ECONNRESET",
      UND_ERR_SOCKET: "UND_ERR_SOCKET other side closed",
      CERT_HAS_EXPIRED: "CERT_HAS_EXPIRED certificate has expired",
      DEPTH_ZERO_SELF_SIGNED_CERT: "DEPTH_ZERO_SELF_SIGNED_CERT self-signed certificate"
    }
    for (const [code, message] of Object.entries(codes)) assert.strictEqual(detail(message), `No connection (${code})`)
    for (const message of ["", "http://user:secret@host/ is bad", "no EHOST.example answers", "E-SECRET"]) {
      assert.strictEqual(detail(message), "No connection")
    }
    assert.strictEqual(Health.detailOf({ statusCode: 500, error: "at http://host" }), "GET /health answered 500")
  })

  it("has only known words of a message", () => {
    fc.assert(
      fc.property(fc.string(), fc.domain(), fc.ipV4(), fc.nat(65_535), (text, domain, ip, port) => {
        const shown = Health.detailOf({ error: `${text} connect ECONNREFUSED ${domain}:${port} ${ip}` })
        assert.match(shown, /^No connection \([A-Z_]+\)$/)
      })
    )
  })

  it("is searched in linear time, however long it is", () => {
    // With every way to divide the letters tried these would take hours.
    for (const letters of ["A".repeat(4_000_000), `${"A".repeat(500)}.`, "A_".repeat(450)]) {
      assert.match(Health.detailOf({ error: `E${letters}a` }), /^No connection/)
    }
  })

  it("is absent if nothing is wrong", () => {
    assert.deepStrictEqual(
      Health.dependency("inference", Option.some({ status: "ok", latencyMs: 3, statusCode: 200 })),
      Option.some({ name: "inference", status: "ok", latencyMs: 3 })
    )
    assert.deepStrictEqual(Health.dependency("inference", Option.none()), Option.none())
  })
})

describe("GET /health", () => {
  test.scoped("is 503 only if the report is unhealthy, and is not cached", function* () {
    const credentials = { credential: undefined, authorization: undefined, headers: {}, identity: undefined }
    const address = { method: "GET", url: "/health", target: "/health", remoteAddress: undefined }
    const incoming = { ...credentials, ...address, upgradeProblem: undefined, origin: undefined, host: undefined }
    const answer = (status: Report["status"]) =>
      Effect.flatMap(endpoints, handlers => handlers.health({ incoming })).pipe(
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

  test.scopedLive("probes real servers: redirects are not followed, and a stopped one is unhealthy", function* () {
    const asked: Array<string> = []
    const { server, url } = yield* localServer((request, response) => {
      asked.push(`${request.url} ${request.headers.authorization}`)
      response.writeHead(302, { location: "/elsewhere" }).end()
    })
    const upstreams = settings(Option.some(url), Option.none())
    const looked = () => Effect.provide(report, Layer.provide(layer(upstreams), NodeHttpClient.layerUndici))
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

  test.scopedLive("of the service reports the upstreams and the replication of its environment", function* () {
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
})

const pathsOf = (group: typeof HealthGroup): Readonly<Record<string, string>> =>
  Object.fromEntries(
    endpointsOf(HttpApi.make("probes").add(group)).map(({ endpoint }) => [endpoint.name, endpoint.path])
  )

describe("the probes", () => {
  it("have the names of their paths in an application", () => {
    for (const [name, path] of Object.entries(pathsOf(HealthRoutes))) expect(path).toBe(`/${name}`)
  })

  it("have the paths of the contract in the service", () => {
    expect(pathsOf(HealthGroup)).toEqual({ health: "/health", alive: "/api/v1/health", ready: "/api/v1/ready" })
  })

  it("are the rows of the table of docs/operate/operations.md", () => {
    const [service, application] = [pathsOf(HealthGroup), pathsOf(HealthRoutes)]
    const page = read("docs/operate/operations.md")
    for (const name of Object.keys(service))
      expect(page).toContain(`| \`${service[name]}\` | \`${application[name]}\` |`)
  })
})
