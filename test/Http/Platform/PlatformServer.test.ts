import { request } from "node:http"
import * as HttpServer from "@effect/platform/HttpServer"
import * as HttpServerResponse from "@effect/platform/HttpServerResponse"
import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer, type Tracer } from "effect"
import * as DrainingSignal from "../../../src/Http/DrainingSignal.ts"
import * as PlatformServer from "../../../src/Http/Platform/PlatformServer.ts"
import { portOf } from "../../Harness.ts"

describe("the platform's server", () => {
  it.scopedLive("writes no credential on the span of a request", () =>
    Effect.gen(function* () {
      let span: Tracer.Span | undefined
      const app = Effect.map(Effect.orDie(Effect.currentSpan), current => {
        span = current
        return HttpServerResponse.empty()
      })
      const server = PlatformServer.layer({ host: "127.0.0.1", port: 0 }).pipe(Layer.provide(DrainingSignal.layer))
      const context = yield* Layer.build(HttpServer.serve(app).pipe(Layer.provideMerge(server)))
      const headers = {
        authorization: "Bearer secret",
        "sec-websocket-protocol": "causeway.v1, bearer.secret",
        "x-a": "b"
      }
      yield* Effect.async<void>(resume => {
        const port = portOf(Context.get(context, HttpServer.HttpServer))
        request({ port, host: "127.0.0.1", headers, agent: false }, response => {
          response.resume().on("end", () => resume(Effect.void))
        }).end()
      })
      const attributes = Object.fromEntries(span?.attributes ?? [])
      assert.strictEqual(attributes["http.request.header.x-a"], "b")
      assert.notInclude(JSON.stringify(attributes), "secret")
    })
  )
})
