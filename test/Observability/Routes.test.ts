import { assert, describe, it } from "@effect/vitest"
import { Effect, Tracer } from "effect"
import { Api } from "../../src/Api.ts"
import * as RequestMetrics from "../../src/Observability/RequestMetrics.ts"
import * as Memory from "../../src/Storage/Memory.ts"
import { keys, stock } from "../Harness.ts"
import { edge } from "../Http/EdgeTransport.ts"

/** A tracer that keeps the spans that it makes. */
const recording = Effect.map(Effect.tracer, tracer => {
  const spans: Array<Tracer.Span> = []
  return {
    spans,
    tracer: Tracer.make({
      context: (f, fiber) => tracer.context(f, fiber),
      span: (...args) => {
        const span = tracer.span(...args)
        spans.push(span)
        return span
      }
    })
  }
})

const targets = [
  "/api/v1/kv/n/k",
  "/api/v1/kv/n",
  "/api/v1/kv/a%2Fb/c?x=1",
  "/api/v1/changes",
  "/api/v1/health",
  "/health"
]

describe("the route of a request", () => {
  for (const transport of [edge, stock]) {
    it.scopedLive(`has one spelling in spans and in metrics, served by ${transport.name}`, () =>
      Effect.gen(function* () {
        const { spans, tracer } = yield* recording
        const { url } = yield* Effect.withTracer(transport.serve(Memory.layer), tracer)
        for (const target of targets) {
          yield* Effect.promise(() =>
            fetch(url + target, { headers: { authorization: `Bearer ${keys.read}` } }).then(answer => answer.text())
          )
        }
        const routes = spans.filter(({ kind }) => kind === "server").map(span => span.attributes.get("http.route"))
        assert.deepStrictEqual(routes, targets.map(RequestMetrics.routeLabels(Api)))
      })
    )
  }
})
