import { describe, expect } from "@effect/vitest"
import {
  Array as Arr,
  Chunk,
  Clock,
  ConfigProvider,
  Effect,
  Either,
  Fiber,
  Layer,
  Logger,
  Option,
  Ref,
  Stream,
  TestClock
} from "effect"
import * as Inference from "../../src/Upstream/Inference.ts"
import * as InferenceClient from "../../src/Upstream/InferenceClient.ts"
import { test } from "../Tests.ts"
import { bytes, events, inferred, plain, withInference } from "./InferenceFixture.ts"
import * as Stub from "./Stub.ts"

describe("streaming generation", () => {
  const ticking = (millis: number) =>
    Stub.streaming(
      "text/plain",
      Stream.repeatEffect(
        Effect.delay(
          Effect.map(Clock.currentTimeMillis, now => bytes(`${now} `)),
          millis
        )
      )
    )

  inferred("gives each piece as it comes", [ticking(1000)], function* ({ generateStream, stub }) {
    const pieces = yield* Ref.make<ReadonlyArray<string>>([])
    const fiber = yield* generateStream({ prompt: "hi" }).pipe(
      Stream.runForEach(piece => Ref.update(pieces, all => [...all, piece])),
      Effect.fork
    )
    yield* TestClock.adjust("2500 millis")
    expect(yield* Ref.get(pieces)).toEqual(["1000 ", "2000 "])
    yield* Fiber.interrupt(fiber)
    expect(stub.seen[0]!.isAborted()).toBe(true)
  })

  for (const [what, answer, pieces] of [
    ["however lively", ticking(7000), 17],
    ["without an answer", Stub.hanging, 0],
    ["without a first piece", Stub.streaming("text/plain", Stream.never), 0]
  ] as const) {
    inferred(`is over after 120 s in all, ${what}`, [answer], function* ({ generateStream, stub }) {
      const count = yield* Ref.make(0)
      const fiber = yield* generateStream({ prompt: "hi" }).pipe(
        Stream.runForEach(() => Ref.update(count, n => n + 1)),
        Effect.flip,
        Effect.fork
      )
      yield* TestClock.adjust("119999 millis")
      expect(yield* Fiber.poll(fiber)).toEqual(Option.none())
      yield* TestClock.adjust("1 millis")
      expect(yield* Fiber.join(fiber)).toMatchObject({ statusCode: 504, message: expect.stringContaining("2m") })
      expect(yield* Ref.get(count)).toBe(pieces)
      expect(stub.seen).toHaveLength(1)
      expect(stub.seen[0]!.isAborted()).toBe(true)
    })
  }

  inferred("gives the request up though nothing more is asked for", [ticking(1)], function* ({ generateStream, stub }) {
    const fiber = yield* generateStream({ prompt: "hi" }).pipe(
      Stream.runForEach(() => Effect.sleep("1 hour")),
      Effect.flip,
      Effect.fork
    )
    yield* TestClock.adjust("119 seconds")
    expect(stub.seen[0]!.isAborted()).toBe(false)
    yield* TestClock.adjust("2 seconds")
    expect(stub.seen[0]!.isAborted()).toBe(true)
    yield* TestClock.adjust("1 hour")
    expect(yield* Fiber.join(fiber)).toMatchObject({ statusCode: 504 })
  })

  test.effect("reads no further than the consumer does", function* () {
    const read = yield* Ref.make(0)
    const body = Stream.repeatEffect(
      Effect.as(
        Ref.update(read, n => n + 1),
        bytes("x")
      )
    )
    const stub = Stub.make([Stub.streaming("text/plain", body)])
    yield* withInference(stub, ({ generateStream }) =>
      generateStream({ prompt: "hi" }).pipe(Stream.take(10), Stream.runDrain)
    )
    expect(yield* Ref.get(read)).toBeLessThanOrEqual(11)
    expect(stub.seen[0]!.isAborted()).toBe(true)
  })

  test.effect("passes on what came before a failure", function* () {
    const body = 'data: {"text":"a"}\n\ndata: {"text":"b"}\n\ndata: rubbish\n\n'
    const stub = Stub.make([Stub.streaming("text/event-stream", Stream.make(bytes(body)))])
    const pieces = yield* withInference(stub, ({ generateStream }) =>
      generateStream({ prompt: "hi" }).pipe(Stream.either, Stream.runCollect)
    )
    expect(Chunk.toReadonlyArray(pieces)).toMatchObject([{ right: "a" }, { right: "b" }, { left: { statusCode: 502 } }])
  })
})

describe("the breaker", () => {
  const down = Arr.replicate(Stub.status(500), 5)

  inferred("open, fails with 503 at once", [...down, plain("ok")], function* ({ generate, generateStream, stub }) {
    const call = Effect.either(generate({ prompt: "hi" }))
    for (let i = 0; i < 5; i++) yield* call
    expect(Either.getLeft(yield* call)).toMatchObject({ value: { _tag: "InferenceError", statusCode: 503 } })
    const stream = yield* Effect.flip(Stream.runDrain(generateStream({ prompt: "hi" })))
    expect(stream.statusCode).toBe(503)
    expect(stub.seen).toHaveLength(5)
    yield* TestClock.adjust("10 seconds")
    expect(yield* call).toEqual(Either.right("ok"))
    expect(yield* call).toEqual(Either.right("ok"))
  })

  inferred("opens at streams that break off", [events('data: {"text":"a"}\n\n')], function* ({ generate, stub }) {
    const call = Effect.either(generate({ prompt: "hi" }))
    // Each counts as begun and as broken off: half of the calls fail.
    for (let i = 0; i < 10; i++) expect(Either.getLeft(yield* call)).toMatchObject({ value: { statusCode: 502 } })
    expect(Either.getLeft(yield* call)).toMatchObject({ value: { statusCode: 503 } })
    expect(stub.seen).toHaveLength(10)
  })

  inferred(
    "stays closed at consumers who leave, before the first piece or after, and at slow ones",
    [Stub.hanging, ...Array.from({ length: 29 }, () => Stub.hanging), plain("abc")],
    function* ({ generateStream }) {
      const stream = generateStream({ prompt: "hi" })
      for (let i = 0; i < 30; i++) {
        const fiber = yield* Effect.fork(Stream.runDrain(stream))
        yield* Effect.yieldNow()
        yield* Effect.yieldNow()
        yield* Fiber.interrupt(fiber)
      }
      for (let i = 0; i < 30; i++) expect(yield* Stream.runCollect(Stream.take(stream, 1))).toHaveLength(1)
      for (let i = 0; i < 6; i++) {
        const slow = yield* Effect.fork(Effect.exit(Stream.runForEach(stream, () => Effect.sleep("200 seconds"))))
        yield* TestClock.adjust("600 seconds")
        yield* Fiber.join(slow)
      }
      expect(yield* Stream.runCollect(stream)).toHaveLength(3)
    }
  )
})

describe("configuration", () => {
  const start = (variables: ReadonlyArray<readonly [string, string]>) =>
    Effect.gen(function* () {
      const warnings: Array<unknown> = []
      const logger = Logger.make(({ message, logLevel }) => void (logLevel.label === "WARN" && warnings.push(message)))
      const stub = Stub.make([Stub.status(200)])
      const found = yield* Effect.gen(function* () {
        const { generate, generateStream, health, probe } = yield* Inference.Inference
        return {
          generate: yield* Effect.either(generate({ prompt: "hi" })),
          stream: yield* Effect.either(Stream.runDrain(generateStream({ prompt: "hi" }))),
          health: yield* health,
          probe: yield* probe
        }
      }).pipe(
        Effect.provide(Layer.unwrapEffect(Effect.map(Inference.config, InferenceClient.layer))),
        Effect.provide(stub.layer),
        Effect.provide(Logger.replace(Logger.defaultLogger, logger)),
        Effect.withConfigProvider(ConfigProvider.fromMap(new Map(variables)))
      )
      return { ...found, warnings: warnings.flat(), sent: stub.seen.map(({ url }) => url) }
    })

  for (const variables of [
    [],
    [["INFERENCE_API_KEY", ""]],
    [["INFERENCE_URL", "http://inference.test:8000/"]]
  ] as const) {
    test.effect(`without a key there is no inference: ${JSON.stringify(variables)}`, function* () {
      const { generate, stream, health, probe, warnings, sent } = yield* start(variables)
      for (const left of [Either.getLeft(generate), Either.getLeft(stream)]) {
        expect(left).toMatchObject({
          value: { _tag: "InferenceError", message: expect.stringMatching(/^Inference unavailable/) }
        })
      }
      expect([health, probe, warnings, sent]).toEqual([false, Option.none(), [], []])
    })
  }

  test.effect("a key is enough: the proxy is then on this machine", function* () {
    const { health, probe, warnings, sent } = yield* start([["INFERENCE_API_KEY", "key"]])
    expect(health).toBe(true)
    expect(probe).toMatchObject({ value: { status: "ok" } })
    expect(warnings).toEqual([])
    expect(sent).toContain("http://127.0.0.1:5180/health")
  })
})
