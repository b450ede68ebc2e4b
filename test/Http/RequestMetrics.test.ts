import { IncomingMessage, ServerResponse } from "node:http"
import { Socket } from "node:net"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Metric, TestClock } from "effect"
import { Api } from "../../src/Api.ts"
import type { Observe } from "../../src/Http/Server/NodeServerGate.ts"
import * as RequestMetrics from "../../src/Http/Server/RequestMetrics.ts"
import * as Samples from "../../src/Observability/Samples.ts"

const series = Effect.map(Metric.snapshot, pairs =>
  Samples.fromSnapshot(pairs).filter(({ name }) => name.startsWith("http_"))
)

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
      const put = exchange(observe, "PUT", "/api/v1/kv/n/k")
      yield* TestClock.adjust("7 millis")
      put.response.writeHead(200)
      put.response.end()
      put.end()
      const found = yield* series
      const labels = { method: "PUT", route: "/api/v1/kv/{namespace}/{key}" }
      const count = found.find(sample => sample.name === "http_requests_total")
      assert.deepInclude(count, { labels: { ...labels, status: "200" }, value: 1 })
      const time = found.find(sample => sample.kind === "histogram")
      assert.deepStrictEqual(time?.labels, labels)
      assert.deepInclude(time?.value, { count: 1, sum: 7 })
    })
  )

  it.effect("counts a client as gone that left while its answer waited, and not one that left within it", () =>
    Effect.gen(function* () {
      const observe = yield* RequestMetrics.observer(Api)
      const waiting = exchange(observe, "GET", "/api/v1/ready")
      waiting.response.writeHead(200)
      waiting.end()
      const begun = exchange(observe, "GET", "/api/v1/changes/stream")
      begun.response.writeHead(200)
      begun.response.write("data")
      begun.end()
      const statuses = (route: string) =>
        Effect.map(series, found =>
          found
            .filter(({ name, labels }) => name === "http_requests_total" && labels.route === route)
            .map(({ labels, value }) => [labels.status, value])
        )
      assert.deepStrictEqual(yield* statuses("/api/v1/ready"), [["aborted", 1]])
      assert.deepStrictEqual(yield* statuses("/api/v1/changes/stream"), [["200", 1]])
    })
  )

  it.effect("makes no series of what strangers ask for", () =>
    Effect.gen(function* () {
      const observe = yield* RequestMetrics.observer(Api)
      exchange(observe, "GET", "/nothing").end()
      const before = (yield* series).length
      for (let index = 0; index < 100; index++) exchange(observe, "GET", `/nothing${index}`).end()
      assert.strictEqual((yield* series).length, before)
      for (let index = 0; index < 100; index++) exchange(observe, `M-${index}`, "/").end()
      assert.strictEqual((yield* series).length, before + 2)
      const gone = (yield* series).find(({ labels }) => labels.method === "other" && labels.status === "aborted")
      assert.strictEqual(gone?.value, 100)
    })
  )
})
