import { IncomingMessage, ServerResponse } from "node:http"
import { Socket } from "node:net"
import * as HttpApi from "@effect/platform/HttpApi"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Metric, TestClock } from "effect"
import { Api } from "../../../src/app/Api.ts"
import * as MetricTags from "../../../src/base/Observability/MetricTags.ts"
import * as Samples from "../../../src/base/Observability/Samples.ts"
import type { Observe } from "../../../src/Http/Server/Gate.ts"
import * as RequestMetrics from "../../../src/Http/Server/RequestMetrics.ts"

/**
 * Gives a test its own series. Other files of this process also count, for example servers that are shutting down, and
 * to a sum of fractions seven milliseconds are not added exactly.
 */
const alone = Effect.tagMetrics("test_requests", "own")

const series = Effect.map(Metric.snapshot, pairs =>
  Samples.fromSnapshot(pairs, MetricTags.none).filter(
    ({ labels, name }) => name.startsWith("http_") && labels.test_requests === "own"
  )
)

/** How many requests have ended, and how many milliseconds they took, by the labels of their series. */
const ended = Effect.map(series, found => {
  const counts = new Map<string, number>()
  for (const { kind, labels, value } of found) {
    const name = `${labels.method} ${labels.route}`
    if (kind === "histogram") counts.set(`${name} count`, value.count).set(`${name} ms`, value.sum)
    else if (labels.status !== undefined) counts.set(`${name} ${labels.status}`, value)
  }
  return counts
})

/** What an effect adds to these numbers: earlier tests of this file have counted, too. */
const added = (effect: Effect.Effect<void>) =>
  Effect.gen(function* () {
    const before = yield* ended
    yield* effect
    const after = yield* ended
    const differences = [...after].map(([name, value]) => [name, value - (before.get(name) ?? 0)] as const)
    return Object.fromEntries(differences.filter(([, difference]) => difference !== 0))
  })

/** A request at the server, and the end of its answer. */
const exchange = (observe: Observe, method: string, url: string) => {
  const request = new IncomingMessage(new Socket())
  request.method = method
  request.url = url
  const response = new ServerResponse(request)
  return { response, end: observe(request, response) }
}

describe("RequestMetrics", () => {
  it("labels paths by their route", () => {
    const routeOf = RequestMetrics.routeLabels(Api)
    assert.strictEqual(routeOf("/api/v1/kv/a%2Fb/c?x=/"), "/api/v1/kv/{namespace}/{key}")
    assert.strictEqual(routeOf("/api/v1/kv/a"), "/api/v1/kv/{namespace}")
    assert.strictEqual(routeOf("/api/v1/changes?after=1"), "/api/v1/changes")
    assert.strictEqual(routeOf("/metrics"), "/metrics")
    for (const other of ["", "/", "*", "/api/v1/kv/a/b/c", "/API/v1/changes", "/wp-login.php"]) {
      assert.strictEqual(routeOf(other), RequestMetrics.unknownRoute, other)
    }
  })

  it.effect("counts and times requests", () =>
    Effect.gen(function* () {
      const observe = yield* RequestMetrics.observer(Api)
      const requests = Effect.gen(function* () {
        const put = exchange(observe, "PUT", "/api/v1/kv/n/k")
        yield* TestClock.adjust("7 millis")
        put.response.writeHead(200)
        put.response.end()
        put.end()
      })
      const route = "PUT /api/v1/kv/{namespace}/{key}"
      assert.deepStrictEqual(yield* added(requests), { [`${route} 200`]: 1, [`${route} count`]: 1, [`${route} ms`]: 7 })
    }).pipe(alone)
  )

  it.effect("has the series of each endpoint and declared status before the first request", () =>
    Effect.gen(function* () {
      yield* RequestMetrics.observer(Api)
      const names = new Set((yield* ended).keys())
      HttpApi.reflect(Api, {
        onGroup: () => undefined,
        onEndpoint: ({ endpoint, successes, errors }) => {
          const name = `${endpoint.method} ${endpoint.path.replace(/:(\w+)/g, "{$1}")}`
          for (const series of ["count", "ms", ...successes.keys(), ...errors.keys()]) {
            assert.isTrue(names.has(`${name} ${series}`), `${name} ${series}`)
          }
        }
      })
    }).pipe(alone)
  )

  it.effect("counts a client as aborted that left before its answer, and not one that left during it", () =>
    Effect.gen(function* () {
      const observe = yield* RequestMetrics.observer(Api)
      const requests = Effect.sync(() => {
        const waiting = exchange(observe, "GET", "/api/v1/ready")
        waiting.response.writeHead(200)
        waiting.end()
        const begun = exchange(observe, "GET", "/api/v1/changes/stream")
        begun.response.writeHead(200)
        begun.response.write("data")
        begun.end()
      })
      assert.deepStrictEqual(yield* added(requests), {
        "GET /api/v1/ready aborted": 1,
        "GET /api/v1/ready count": 1,
        "GET /api/v1/changes/stream 200": 1,
        "GET /api/v1/changes/stream count": 1
      })
    }).pipe(alone)
  )

  it.effect("creates no series for unknown paths and methods", () =>
    Effect.gen(function* () {
      const observe = yield* RequestMetrics.observer(Api)
      exchange(observe, "GET", "/nothing").end()
      const before = (yield* series).length
      for (let index = 0; index < 100; index++) exchange(observe, "GET", `/nothing${index}`).end()
      assert.strictEqual((yield* series).length, before)
      const odd = Effect.sync(() => {
        for (let index = 0; index < 100; index++) exchange(observe, `M-${index}`, "/").end()
      })
      assert.deepStrictEqual(yield* added(odd), { "other unknown aborted": 100, "other unknown count": 100 })
      assert.isAtMost((yield* series).length, before + 2)
    }).pipe(alone)
  )
})
