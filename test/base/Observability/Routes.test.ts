import { assert, describe } from "@effect/vitest"
import { Effect, LogLevel } from "effect"
import { Api } from "../../../src/app/Api.ts"
import * as RequestMetrics from "../../../src/Http/Server/RequestMetrics.ts"
import * as Memory from "../../../src/Storage/Memory.ts"
import { keys, platformFor, stock } from "../../Harness.ts"
import { edge } from "../../Http/Edge/EdgeTransport.ts"
import { test } from "../../Tests.ts"
import { logged, recording } from "./Recording.ts"

const targets = [
  "/api/v1/kv/n/k",
  "/api/v1/kv/n",
  "/api/v1/kv/a%2Fb/c?x=1",
  "/api/v1/changes",
  "/api/v1/health",
  "/health"
]

/** Request ids come from the layer that hosts put on it. */
const platform = platformFor([])

describe("the route and the id of a request", () => {
  for (const transport of [edge, stock, platform]) {
    test.scopedLive(`has one spelling in spans and in metrics, served by ${transport.name}`, function* () {
      const { spans, tracer } = yield* recording
      const { url } = yield* Effect.withTracer(transport.serve(Memory.layer), tracer)
      const headers = { authorization: `Bearer ${keys.read}`, "sec-websocket-protocol": `bearer.${keys.read}` }
      for (const [id, target] of targets.entries()) {
        const request = { headers: { ...headers, "x-request-id": String(id) } }
        yield* Effect.promise(() => fetch(url + target, request).then(answer => answer.text()))
      }
      const servers = spans.filter(({ kind }) => kind === "server").map(({ attributes }) => attributes)
      const found = servers.map(attributes => [attributes.get("http.request.id"), attributes.get("http.route")])
      const routeOf = RequestMetrics.routeLabels(Api)
      assert.deepStrictEqual(
        found,
        targets.map((target, id) => [transport === platform ? undefined : String(id), routeOf(target)])
      )
      assert.notInclude(JSON.stringify(servers.map(attributes => [...attributes])), keys.read)
    })
  }
})

describe("the lines of a request", () => {
  test.scopedLive("name its trace and span while tracing is on, also if it is refused", function* () {
    const { spans, tracer } = yield* recording
    const { layer, lines } = logged(LogLevel.Debug)
    const { url } = yield* edge.serve(Memory.layer).pipe(Effect.withTracer(tracer), Effect.provide(layer))
    const asked: ReadonlyArray<readonly [string, RequestInit, number]> = [
      ["/api/v1/kv/n/none", {}, 404],
      ["/api/v1/kv/n", {}, 200],
      ["/nowhere", {}, 404],
      ["/api/v1/kv/n/k", { headers: { authorization: "Bearer wrong" } }, 401],
      ["/api/v1/changes?limit=many", {}, 400],
      ["/api/v1/kv/n/k", { method: "PUT", body: "{" }, 400]
    ]
    for (const [target, init, status] of asked) {
      const headers = { authorization: `Bearer ${keys.write}`, "content-type": "application/json" }
      const answer = yield* Effect.promise(() => fetch(url + target, { headers, ...init }))
      yield* Effect.promise(() => answer.text())
      assert.strictEqual(answer.status, status, target)
    }
    const found = lines().filter(({ annotations }) => "requestId" in annotations)
    assert.isAtLeast(found.length, asked.length)
    const servers = spans.filter(({ kind }) => kind === "server")
    assert.deepStrictEqual(
      servers.map(span => span.attributes.get("http.response.status_code")),
      asked.map(([, , status]) => status)
    )
    for (const { annotations } of found) {
      const span = spans.find(({ spanId }) => spanId === annotations.spanId)
      assert.isDefined(span, JSON.stringify(annotations))
      assert.strictEqual(annotations.traceId, span?.traceId)
    }
  })
})
