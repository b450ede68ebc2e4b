import { assert, describe, it } from "@effect/vitest"
import { Effect, FastCheck as fc, LogLevel, Random } from "effect"
import { Api } from "../../../src/app/Api.ts"
import { requestIdAnnotation, requestIdOf, requestIds } from "../../../src/Http/HeaderFields.ts"
import * as RequestMetrics from "../../../src/Http/Server/RequestMetrics.ts"
import * as Memory from "../../../src/Storage/Memory.ts"
import { keys, platformFor, stock } from "../../Harness.ts"
import { edge } from "../../Http/Edge/EdgeTransport.ts"
import * as Outage from "../../suites/Http/Outage.ts"
import { test } from "../../Tests.ts"
import { logged, recording } from "./Recording.ts"

describe("a request's id", () => {
  it("is the client's if it is fit for headers and logs", () => {
    for (const id of [
      "a",
      "7b0c1d2e-11aa-4bcd-8e9f-0123456789ab",
      "Root=1-67891233-abcdef012345678912345678",
      "a/b:c"
    ]) {
      assert.strictEqual(requestIdOf(id), id)
    }
    for (const id of [undefined, "", " ", "a b", "a,b", 'a"', "a\nb", "é", "-a", "<script>", "x".repeat(129)]) {
      assert.isUndefined(requestIdOf(id), String(id))
    }
    assert.isUndefined(requestIdOf(["a", "b"]))
    fc.assert(
      fc.property(fc.fullUnicodeString(), text => {
        const id = requestIdOf(text)
        assert.isTrue(id === undefined || (id === text && /^[!-~]{1,128}$/.test(id)))
      })
    )
  })

  test.effect("is unique within a process and across processes", function* () {
    const generator = (seed: string) => Effect.withRandom(requestIds, Random.make(seed))
    const [one, other] = [yield* generator("one"), yield* generator("other")]
    const ids = new Set([one(), one(), one(), other(), other()])
    assert.strictEqual(ids.size, 5)
    for (const id of ids) assert.strictEqual(requestIdOf(id), id)
  })
})

describe("the edge", () => {
  test.scopedLive("logs each answer at level debug, under the request's id", function* () {
    const messages = (level: LogLevel.LogLevel) =>
      Effect.gen(function* () {
        const { layer, lines } = logged(level)
        yield* Effect.gen(function* () {
          const { url } = yield* edge.serve(Outage.busy)
          const headers = { "x-request-id": "one" }
          yield* Effect.promise(() => fetch(`${url}/nowhere?x=1`, { headers }))
          yield* Effect.promise(() => fetch(`${url}/api/v1/changes?after=7&token=secret`, { headers }))
        }).pipe(Effect.provide(layer))
        return lines()
          .filter(({ message }) => message === "Answered a request")
          .map(({ annotations: { [requestIdAnnotation]: id, target } }) => [id, target])
      })
    // A client may have put a secret into an unknown parameter.
    assert.deepStrictEqual(
      yield* messages(LogLevel.Debug),
      ["/nowhere?x=…", "/api/v1/changes?after=7&token=…"].map(target => ["one", target])
    )
    assert.deepStrictEqual(yield* messages(LogLevel.Info), [])
  })
})

for (const transport of [edge, stock]) {
  describe(`${transport.name}: the header x-request-id`, () => {
    test.scopedLive("is in every answer, and is new if there was none or an invalid one", function* () {
      const { layer } = logged(LogLevel.Info)
      const { url } = yield* Effect.provide(transport.serve(Outage.busy), layer)
      const send = (path: string, id?: string, init: RequestInit = {}) =>
        Effect.promise(async () => {
          const response = await fetch(url + path, {
            ...init,
            headers: { authorization: `Bearer ${keys.write}`, ...(id === undefined ? {} : { "x-request-id": id }) }
          })
          await response.arrayBuffer()
          return [response.status, response.headers.get("x-request-id")] as const
        })
      const paths = {
        "/api/v1/health": 200,
        "/api/v1/kv/n/k": 404,
        "/nowhere": 404,
        "/api/v1/kv/%zz": 400,
        "/api/v1/changes/stream": 200,
        "/api/v1/changes?after=x": 400
      }
      for (const [path, status] of Object.entries(paths)) {
        // A stream does not end; its head is all that is asked for.
        const init = path.endsWith("stream") ? { method: "HEAD" } : {}
        assert.deepStrictEqual(yield* send(path, "from-client-1", init), [status, "from-client-1"], path)
        const [, made] = yield* send(path, undefined, init)
        assert.match(made ?? "", /^[0-9a-f]{16}-\d+$/, path)
      }
      assert.deepStrictEqual(yield* send("/api/v1/health", "a, b").pipe(Effect.map(([status]) => status)), 200)
      const [, replaced] = yield* send("/api/v1/health", "a b")
      assert.match(replaced ?? "", /^[0-9a-f]{16}-\d+$/)
    })

    test.scopedLive("is on the log lines of the request, and on no others", function* () {
      const { layer, lines } = logged(LogLevel.Info)
      yield* Effect.gen(function* () {
        const { url } = yield* transport.serve(Outage.broken)
        const send = (id: string) =>
          Effect.promise(() =>
            fetch(`${url}/api/v1/kv/n/k`, { headers: { authorization: `Bearer ${keys.read}`, "x-request-id": id } })
          )
        const answers = yield* Effect.all(["one", "two", "three"].map(send), { concurrency: "unbounded" })
        assert.deepStrictEqual(
          answers.map(({ status }) => status),
          [500, 500, 500]
        )
      }).pipe(Effect.provide(layer))
      const defects = lines().filter(({ message }) => message.includes("Defect"))
      assert.sameMembers(
        defects.map(({ annotations }) => annotations[requestIdAnnotation]),
        ["one", "two", "three"]
      )
    })
  })
}

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
