import { assert, describe, it } from "@effect/vitest"
import { Deferred, Effect, Tracer as EffectTracer, Fiber, FiberRef, Layer, Option, Random } from "effect"
import * as Tracer from "../../../src/base/Observability/Tracer.ts"
import { test } from "../../Tests.ts"
import * as Collector from "./Collector.ts"

const currentTraceId = Effect.flatMap(Tracer.Tracer, tracer => tracer.currentTraceId)

const hex = /^[0-9a-f]{32}$/

/** A tracer that records the requested spans. */
const counting = Effect.map(Effect.tracer, native => {
  const made: Array<string> = []
  const tracer = EffectTracer.make({
    span: (name, ...rest) => {
      made.push(name)
      return native.span(name, ...rest)
    },
    context: native.context
  })
  return { made, tracer }
})

const nowhere = { endpoint: new URL("http://127.0.0.1:1"), serviceName: "tested" }

describe("Tracer", () => {
  const missing = Tracer.layerExport(nowhere, () => Promise.reject(new Error("Cannot find package")))
  it.effect.each([
    ["when it is off", Tracer.layerFor(Option.none())],
    ["if its packages are missing", Layer.merge(Tracer.layer, missing)]
  ] as const)("creates no spans %s, and generates trace ids", ([_, layer]) =>
    Effect.gen(function* () {
      const { made, tracer } = yield* counting
      const [enabled, traceId] = yield* Effect.all([FiberRef.get(FiberRef.currentTracerEnabled), currentTraceId]).pipe(
        Effect.withSpan("work"),
        Effect.withTracer(tracer),
        Effect.provide(layer)
      )
      assert.isFalse(enabled)
      assert.match(traceId, hex)
      assert.deepStrictEqual(made, [])
    })
  )

  it.effect("generates a new trace id each time, by the Random service", () =>
    Effect.gen(function* () {
      const two = yield* Effect.all([currentTraceId, currentTraceId])
      assert.notStrictEqual(two[0], two[1])
      const seeded = Effect.suspend(() => Effect.withRandom(currentTraceId, Random.make("seed")))
      assert.strictEqual(yield* seeded, yield* seeded)
    }).pipe(Effect.provide(Tracer.layer))
  )

  test.scopedLive("exports spans to the collector, the last ones at shutdown", function* () {
    const { requests, resources, spans, target } = yield* Collector.collector()
    const traceId = yield* currentTraceId.pipe(
      Effect.withSpan("work", { attributes: { answer: 42, text: "x", yes: true } }),
      Effect.provide(Tracer.layerFor(Option.some(target)))
    )
    const [span, ...others] = yield* spans
    assert.lengthOf(others, 0)
    assert.deepInclude(span, { traceId, name: "work", status: { code: Collector.code.ok } })
    assert.includeDeepMembers(
      [...(span?.attributes ?? [])],
      [
        { key: "answer", value: { intValue: 42 } },
        { key: "text", value: { stringValue: "x" } },
        { key: "yes", value: { boolValue: true } }
      ]
    )
    const [resource = []] = yield* resources
    assert.includeDeepMembers([...resource], [{ key: "service.name", value: { stringValue: "tested" } }])
    assert.deepStrictEqual(
      requests.map(({ path, type }) => [path, type]),
      [["/base/v1/traces", "application/json"]]
    )
  })

  test.scopedLive("ends a span with OK, or with ERROR and a message if it failed or was interrupted", function* () {
    const { spans, target } = yield* Collector.collector()
    yield* Effect.gen(function* () {
      yield* Effect.withSpan(Effect.void, "fine")
      yield* Effect.exit(Effect.withSpan(Effect.fail(new Error("no disk")), "failed"))
      yield* Effect.exit(Effect.withSpan(Effect.die("a bug"), "died"))
      const begun = yield* Deferred.make<void>()
      const endless = Effect.zipRight(Deferred.succeed(begun, undefined), Effect.never)
      const fiber = yield* Effect.fork(Effect.withSpan(endless, "interrupted"))
      yield* Deferred.await(begun)
      yield* Fiber.interrupt(fiber)
    }).pipe(Effect.provide(Tracer.layerFor(Option.some(target))))
    const found = Object.fromEntries((yield* spans).map(({ name, status }) => [name, status]))
    assert.deepStrictEqual(found, {
      fine: { code: Collector.code.ok },
      failed: { code: Collector.code.error, message: "no disk" },
      died: { code: Collector.code.error, message: "a bug" },
      interrupted: { code: Collector.code.error, message: "The work was interrupted before its end" }
    })
  })

  test.scopedLive("is initialized once: a second initialization does nothing", function* () {
    const { spans, target } = yield* Collector.collector()
    const other = yield* Collector.collector()
    const work = Effect.withSpan(Effect.void, "work").pipe(
      Effect.provide(Tracer.layerFor(Option.some(other.target))),
      Effect.provide(Tracer.layerFor(Option.some(target)))
    )
    yield* Effect.withSpan(work, "outside")
    assert.deepStrictEqual(
      (yield* spans).map(({ name }) => name),
      ["work"]
    )
    assert.lengthOf(other.requests, 0)
  })
})
