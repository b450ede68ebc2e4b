import * as Http from "node:http"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Tracer as EffectTracer, FiberRef, Layer, Option, Random } from "effect"
import * as Tracer from "../../src/Observability/Tracer.ts"

const currentTraceId = Effect.flatMap(Tracer.Tracer, tracer => tracer.currentTraceId)

const hex = /^[0-9a-f]{32}$/

/** A collector that keeps what it is sent. */
const collector = Effect.gen(function* () {
  const received: Array<{ readonly path: string; readonly body: string }> = []
  const server = yield* Effect.acquireRelease(
    Effect.async<Http.Server>(resume => {
      const server = Http.createServer((request, response) => {
        const chunks: Array<Buffer> = []
        request.on("data", chunk => chunks.push(chunk))
        request.on("end", () => {
          received.push({ path: request.url ?? "", body: Buffer.concat(chunks).toString() })
          response.end("{}")
        })
      })
      server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
    }),
    server =>
      Effect.sync(() => {
        server.close()
        server.closeAllConnections()
      })
  )
  const address = server.address()
  const port = typeof address === "object" && address !== null ? address.port : 0
  return { received, endpoint: new URL(`http://127.0.0.1:${port}/base/`), serviceName: "tested" }
})

describe("Tracer", () => {
  it.effect("creates no spans when it is off, and makes trace ids up", () =>
    Effect.gen(function* () {
      const made: Array<string> = []
      const native = yield* Effect.tracer
      const counting = EffectTracer.make({
        span: (name, ...rest) => {
          made.push(name)
          return native.span(name, ...rest)
        },
        context: native.context
      })
      const traceId = yield* currentTraceId.pipe(
        Effect.withSpan("work"),
        Effect.withTracer(counting),
        Effect.provide(Tracer.layerFor(Option.none()))
      )
      assert.match(traceId, hex)
      assert.deepStrictEqual(made, [])
    })
  )

  it.effect("makes up a new trace id each time, by the Random service", () =>
    Effect.gen(function* () {
      const two = yield* Effect.all([currentTraceId, currentTraceId])
      assert.notStrictEqual(two[0], two[1])
      const seeded = Effect.suspend(() => Effect.withRandom(currentTraceId, Random.make("seed")))
      assert.strictEqual(yield* seeded, yield* seeded)
    }).pipe(Effect.provide(Tracer.layer))
  )

  it.effect("tells the active span's trace id when it is on", () =>
    Effect.gen(function* () {
      const [traceId, spanTraceId] = yield* Effect.all([
        currentTraceId,
        Effect.map(Effect.currentSpan, span => span.traceId)
      ])
      assert.strictEqual(traceId, spanTraceId)
      assert.match(traceId, hex)
    }).pipe(Effect.withSpan("work"), Effect.provide(Tracer.layer))
  )

  it.scopedLive("sends spans to the collector, the last ones when it ends", () =>
    Effect.gen(function* () {
      const { received, ...target } = yield* collector
      const traceId = yield* currentTraceId.pipe(
        Effect.withSpan("work", { attributes: { answer: 42 } }),
        Effect.provide(Tracer.layerFor(Option.some(target)))
      )
      assert.isNotEmpty(received)
      assert.strictEqual(received[0]!.path, "/base/v1/traces")
      const body = received.map(({ body }) => body).join("")
      assert.include(body, traceId)
      assert.include(body, '"work"')
      assert.include(body, '"tested"')
    })
  )

  it.scopedLive("is not held up by a collector that cannot be reached", () =>
    Effect.gen(function* () {
      const traceId = yield* currentTraceId.pipe(
        Effect.withSpan("work"),
        Effect.provide(Tracer.layerFor(Option.some({ endpoint: new URL("http://127.0.0.1:1"), serviceName: "tested" })))
      )
      assert.match(traceId, hex)
    })
  )

  it.effect("is off where the packages are missing", () =>
    Effect.gen(function* () {
      const target = { endpoint: new URL("http://127.0.0.1:1"), serviceName: "tested" }
      const layer = Tracer.layerExport(target, () => Promise.reject(new Error("Cannot find package")))
      const [enabled, traceId] = yield* Effect.all([FiberRef.get(FiberRef.currentTracerEnabled), currentTraceId]).pipe(
        Effect.withSpan("work"),
        Effect.provide(Layer.merge(Tracer.layer, layer))
      )
      assert.isFalse(enabled)
      assert.match(traceId, hex)
    })
  )
})
