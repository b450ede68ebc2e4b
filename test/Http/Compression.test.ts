import { gunzipSync } from "node:zlib"
import { describe, expect, it } from "@effect/vitest"
import { Deferred, Effect, Exit, Fiber, Stream } from "effect"
import { beforeAll } from "vitest"
import * as Direct from "../../src/base/Direct.ts"
import { yieldToEventLoop } from "../../src/base/Time/EventLoop.ts"
import { compress, maxThreads, takesGzip } from "../../src/Http/Compression.ts"
import * as Reply from "../../src/Http/Reply.ts"
import { test } from "../Tests.ts"

const gzip = { headers: { "accept-encoding": "gzip" } }

const text = JSON.stringify(Array.from({ length: 500 }, (_, index) => ({ index, text: "é😀" })))

const bytesOf = ({ body }: Reply.Reply) =>
  body instanceof Uint8Array || typeof body === "string" || body === undefined
    ? Effect.succeed(Buffer.from(body ?? ""))
    : Effect.map(Stream.runCollect(body as Stream.Stream<Uint8Array>), chunks => Buffer.concat([...chunks]))

const streamed = (chunks: ReadonlyArray<string>, release: Effect.Effect<void> = Effect.void) =>
  Reply.stream("application/json", Stream.fromIterable(chunks.map(chunk => Buffer.from(chunk))), {}, release)

const noop = () => {}

/** Occupies all threads with bodies. */
const allFree = Effect.gen(function* () {
  const replies = yield* Effect.replicateEffect(compress(Reply.json(text), gzip), maxThreads, {
    concurrency: "unbounded"
  })
  for (const { headers } of replies) expect(headers["content-encoding"]).toBe("gzip")
})

/** Repeats a check until it holds; the test's own timeout detects a check that never does. */
const eventually = (check: Effect.Effect<void>): Effect.Effect<void> =>
  Effect.catchAllDefect(check, () => Effect.zipRight(yieldToEventLoop, eventually(check)))

// The threads are those of the process, in which tests of other files may have left work.
beforeAll(() => Effect.runPromise(eventually(allFree)))

describe("compression of answers", () => {
  it.each([
    [undefined, false],
    ["", false],
    ["gzip", true],
    ["GZIP", true],
    ["x-gzip", true],
    ["deflate, br", false],
    ["br, gzip;q=0.5, deflate", true],
    ["gzip;q=0", false],
    ["gzip; q=0.000", false],
    ["gzip;q=x", false],
    ["gzip;q=", false],
    ["*", true],
    ["*;q=0", false],
    ["gzip;q=0, *", false],
    ["*;q=0, gzip", true],
    ["identity, gzip;q=0.5", false],
    ["identity;q=0.5, gzip", true],
    ["identity;q=0.5, gzip;q=0.5", true],
    ["gzip;level=1", false],
    [["br", "gzip"], true]
  ] as const)("Accept-Encoding %j takes gzip: %s", (header, takes) => {
    expect(takesGzip(header)).toBe(takes)
  })

  test.effect("a body is unchanged after decompression, text and bytes alike, and has Vary", function* () {
    for (const body of [text, Buffer.from(text)]) {
      const reply = yield* compress(Reply.json(body, { "kv-epoch": "e" }), gzip)
      expect(reply.headers).toEqual({
        "content-type": "application/json",
        "kv-epoch": "e",
        "content-encoding": "gzip",
        vary: "Accept-Encoding"
      })
      const bytes = yield* bytesOf(reply)
      expect(bytes.length).toBeLessThan(Buffer.byteLength(text) / 5)
      expect(gunzipSync(bytes).toString()).toBe(text)
    }
    const plain = yield* compress(Reply.json(text), { headers: { origin: "http://a" } })
    expect([plain.body, plain.headers.vary]).toEqual([text, "Origin, Accept-Encoding"])
  })

  test.effect("small answers, errors and answers without a body are unchanged", function* () {
    for (const reply of [
      Reply.json("x".repeat(1023)),
      Reply.refusal(400, "x".repeat(5000)),
      Reply.empty(304),
      { ...Reply.json(text), status: 206 }
    ]) {
      expect(yield* compress(reply, gzip)).toBe(reply)
    }
  })

  test.effect("bodies for which no thread is free are sent uncompressed", function* () {
    const replies = yield* Effect.replicateEffect(compress(Reply.json(text), gzip), 10, { concurrency: "unbounded" })
    const encodings = replies.map(({ headers }) => headers["content-encoding"])
    expect(encodings).toEqual(Array.from({ length: 10 }, (_, index) => (index < maxThreads ? "gzip" : undefined)))
    yield* allFree
  })

  test.effect("a body whose client disconnects frees its thread", function* () {
    const interrupts = Array.from({ length: maxThreads }, () =>
      Direct.run(compress(Reply.json(text.repeat(50)), gzip), Effect.runFork, noop)
    )
    expect((yield* compress(Reply.json(text), gzip)).headers["content-encoding"]).toBeUndefined()
    for (const interrupt of interrupts) interrupt()
    yield* eventually(allFree)
  })

  test.effect("streams take turns, and each is unchanged after decompression", function* () {
    const chunks = (name: number) => Array.from({ length: 20 }, (_, index) => `${name} ${index} ${text}`)
    const outcomes = yield* Effect.forEach(
      Array.from({ length: 10 }, (_, name) => chunks(name)),
      chunks => Effect.flatMap(compress(streamed(chunks), gzip), bytesOf),
      { concurrency: "unbounded" }
    )
    for (const [name, bytes] of outcomes.entries()) {
      const whole = chunks(name).join("")
      expect(gunzipSync(bytes).toString() === whole).toBe(true)
      expect(bytes.length).toBeLessThan(Buffer.byteLength(whole) / 5)
    }
    for (const empty of [[], [""], ["", text, ""]]) {
      const bytes = yield* bytesOf(yield* compress(streamed(empty), gzip))
      expect(gunzipSync(bytes).toString()).toBe(empty.join(""))
    }
    yield* allFree
  })

  test.effect("the resources of a reply are released once, by its sender", function* () {
    let released = 0
    const release = Effect.sync(() => void released++)
    const reply = yield* compress(streamed([text], release), gzip)
    yield* bytesOf(reply)
    expect(released).toBe(0)
    yield* reply.release!
    expect(released).toBe(1)
  })

  test.effect(
    "streams that are interrupted during work, in the queue, or between chunks, leave all threads free",
    function* () {
      const random = text.repeat(20)
      const working = yield* Effect.forEach(Array.from({ length: 8 }), () =>
        Effect.flatMap(compress(streamed([random, random, random]), gzip), bytesOf).pipe(Effect.fork)
      )
      const unread = Reply.stream("application/json", Stream.concat(Stream.make(Buffer.from(text)), Stream.never))
      const idle = yield* Effect.fork(Effect.flatMap(compress(unread, gzip), bytesOf))
      // Its only work is the end, of which nothing reports that it cannot be done later.
      const ending = yield* Effect.fork(Effect.flatMap(compress(streamed([]), gzip), bytesOf))
      yield* yieldToEventLoop
      yield* Fiber.interruptAll([...working.slice(0, 5), idle, ending])
      yield* yieldToEventLoop
      yield* Fiber.interruptAll(working)
      yield* eventually(allFree)
    }
  )

  test.effect("a stream that is interrupted while its end is compressed frees its thread", function* () {
    for (let round = 0; round <= maxThreads; round++) {
      const left = yield* Deferred.make<void>()
      // The end of the body, and with it the last work, comes before the next microtask.
      const ending = Effect.sync(() => queueMicrotask(() => Deferred.unsafeDone(left, Effect.void)))
      const body = Stream.concat(Stream.make(Buffer.from(text)), Stream.execute(ending))
      const reply = yield* compress(Reply.stream("application/json", body), gzip)
      const outcome = yield* Effect.raceFirst(bytesOf(reply), Deferred.await(left))
      expect(outcome).toBeUndefined()
    }
    yield* eventually(allFree)
  })

  test.effect("a stream that is not read between its chunks occupies no thread", function* () {
    const slow = Reply.stream("application/json", Stream.concat(Stream.make(Buffer.from(text)), Stream.never))
    const readers = yield* Effect.forEach(Array.from({ length: 8 }), () =>
      Effect.fork(Effect.flatMap(compress(slow, gzip), bytesOf))
    )
    yield* eventually(allFree)
    yield* Fiber.interruptAll(readers)
  })

  test.effect("a stream that fails before its end fails, so that no client regards a part as the whole", function* () {
    const body = Stream.concat(Stream.make(Buffer.from(text)), Stream.die(new Error("lost")))
    const reply = yield* compress(Reply.stream("application/json", body), gzip)
    expect(Exit.isFailure(yield* Effect.exit(bytesOf(reply)))).toBe(true)
    yield* eventually(allFree)
  })
})
