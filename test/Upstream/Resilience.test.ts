import { describe, expect, it } from "@effect/vitest"
import { Clock, Effect, Either, Exit, Fiber, Metric, Random, Ref, TestClock } from "effect"
import * as CircuitBreakerState from "../../src/Upstream/Resilience/CircuitBreakerState.ts"
import { parseRetryAfter, UpstreamFailure } from "../../src/Upstream/Resilience/UpstreamFailure.ts"
import * as Resilience from "../../src/Upstream/Resilience.ts"
import { given } from "../Given.ts"
import { test } from "../Tests.ts"

const durations = Resilience.durations("test_request_duration_ms", "Requests of tests")

const upstream = Resilience.make({ upstream: "test", durations })

const called = given(it.scoped, () => upstream)

/** A breaker that stays out of the way. */
const patient = Resilience.make({
  upstream: "patient",
  durations,
  breaker: { ...CircuitBreakerState.defaults, consecutiveFailures: 1e9, minimumCalls: 1e9 }
})

const policy: Resilience.Policy = {
  operation: "get",
  repeatable: true,
  tryTimeout: "30 seconds",
  timeout: "120 seconds"
}

const failure = (more: Partial<UpstreamFailure>) =>
  new UpstreamFailure({ operation: "get", reason: "connection", message: "broken", ...more })

const status = (statusCode: number, retryAfterMillis?: number) =>
  failure({ reason: "status", statusCode, retryAfterMillis })

/** Fails each time, and notes when it was tried. */
const failing = (error: UpstreamFailure) =>
  Effect.map(Ref.make<ReadonlyArray<number>>([]), times => ({
    times: Ref.get(times),
    attempt: Effect.flatMap(Clock.currentTimeMillis, now =>
      Effect.zipRight(
        Ref.update(times, tried => [...tried, now]),
        error
      )
    )
  }))

/** Runs to the end, however long it takes on the test's clock. */
const finish = <A, E>(effect: Effect.Effect<A, E>) =>
  Effect.gen(function* () {
    const fiber = yield* Effect.fork(Effect.either(effect))
    yield* TestClock.adjust("10 minutes")
    return yield* Fiber.join(fiber)
  })

describe("retries", () => {
  called("three tries in all, with the waits of full jitter that the seed decides", function* ({ call }) {
    const { attempt, times } = yield* failing(failure({}))
    const draws = yield* Effect.withRandom(Effect.all([Random.next, Random.next]), Random.make("seed"))
    const result = yield* Effect.withRandom(finish(call(policy, attempt)), Random.make("seed"))
    expect(Either.getLeft(result)).toMatchObject({ value: { message: "broken" } })
    const tried = yield* times
    expect(tried).toHaveLength(3)
    expect(tried[1]! - tried[0]!).toBeCloseTo(200 * draws[0], -1)
    expect(tried[2]! - tried[1]!).toBeCloseTo(400 * draws[1], -1)
    expect(draws[0]).not.toBe(draws[1])
  })

  called("are as many as the failure allows", function* () {
    for (const [tries, error, repeatable] of [
      ...[failure({}), failure({ reason: "timeout" })].map(error => [3, error, true] as const),
      ...[408, 429, 502, 503, 504].map(code => [3, status(code), true] as const),
      ...[failure({ reason: "malformed" }), failure({ reason: "too_large" })].map(error => [1, error, true] as const),
      ...[301, 400, 401, 404, 409, 500, 501].map(code => [1, status(code), true] as const),
      // The upstream asks for ten seconds at most, or for more.
      [3, status(429, 10_000), true],
      [1, status(429, 10_001), true],
      [1, failure({}), false]
    ] as const) {
      const { call } = yield* upstream
      const { attempt, times } = yield* failing(error)
      yield* finish(call({ ...policy, repeatable }, attempt))
      expect(yield* times, JSON.stringify(error)).toHaveLength(tries)
    }
  })

  called("report the timeout without the fraction that earlier tries have left", function* ({ call }) {
    for (const [tryTimeout, words] of [
      [29_907.983398, "29s 900ms"],
      [14_999.915771, "15s"],
      [250.4, "250ms"]
    ] as const) {
      const result = yield* finish(call({ ...policy, tryTimeout, repeatable: false }, Effect.never))
      expect(Either.getLeft(result)).toMatchObject({ value: { message: `No answer to get within ${words}` } })
    }
  })

  called("wait as long as the upstream asks, and some more by chance", function* ({ call }) {
    const { attempt, times } = yield* failing(status(503, 7000))
    yield* finish(call(policy, attempt))
    const [first, second, third] = yield* times
    expect(second! - first!).toBeGreaterThanOrEqual(7000)
    expect(second! - first!).toBeLessThanOrEqual(7200)
    expect(third! - second!).toBeGreaterThanOrEqual(7000)
    expect(third! - second!).toBeLessThanOrEqual(7400)
  })

  called("none that could not begin before the call's time is up", function* ({ call }) {
    const { attempt, times } = yield* failing(status(503, 6000))
    const fiber = yield* Effect.fork(Effect.either(call({ ...policy, timeout: "10 seconds" }, attempt)))
    yield* TestClock.adjust("7 seconds")
    // The second wait would end after ten seconds, so it is not begun, and the caller learns at once what was wrong.
    expect(Either.getLeft(yield* Fiber.join(fiber))).toMatchObject({ value: { statusCode: 503 } })
    expect(yield* times).toHaveLength(2)
  })

  it("read Retry-After as seconds or as a date", () => {
    const now = Date.parse("Fri, 31 Dec 1999 23:59:57 GMT")
    expect(parseRetryAfter("120", now)).toBe(120_000)
    expect(parseRetryAfter("0", now)).toBe(0)
    expect(parseRetryAfter("Fri, 31 Dec 1999 23:59:59 GMT", now)).toBe(2000)
    expect(parseRetryAfter("Friday, 31-Dec-99 23:59:59 GMT", now)).toBe(2000)
    expect(parseRetryAfter("Fri Dec 31 23:59:59 1999 GMT", now)).toBe(2000)
    expect(parseRetryAfter("Fri, 31 Dec 1999 23:00:00 GMT", now)).toBe(0)
    for (const odd of [undefined, "", "-1", "1.5", "soon", "1e3", "9999999999999"]) {
      expect(parseRetryAfter(odd, now)).toBeUndefined()
    }
  })
})

test.scoped("forty calls that fail together make no more retries than the budget allows", function* () {
  const { call } = yield* patient
  const { attempt, times } = yield* failing(status(429))
  const calls = Array.from({ length: 40 }, () => Effect.either(call(policy, attempt)))
  yield* finish(Effect.all(calls, { concurrency: "unbounded" }))
  expect(yield* times).toHaveLength(40 + 0.2 * 40 + 30)
})

describe("the breaker", () => {
  called("counts each try, and ends the retries where it opens", function* ({ breaker, call }) {
    const { attempt, times } = yield* failing(failure({}))
    yield* finish(call(policy, attempt))
    const second = yield* finish(call(policy, attempt))
    // The fifth failure in a row opened it: no third try, and the failure is the upstream's own.
    expect(yield* times).toHaveLength(5)
    expect(Either.getLeft(second)).toMatchObject({ value: { reason: "connection" } })
    expect(yield* breaker.state).toBe("half_open")
  })

  called("rejects without a request, and rejections earn no retries", function* ({ call }) {
    const { attempt, times } = yield* failing(status(500))
    yield* Effect.replicateEffect(Effect.either(call(policy, attempt)), 5)
    const result = yield* Effect.either(call(policy, attempt))
    expect(Either.getLeft(result)).toMatchObject({ value: { reason: "circuit_open", retryAfterMillis: 10_000 } })
    expect(yield* times).toHaveLength(5)
  })

  called("does not open at 4xx, at answers too large, or at callers who leave", function* ({ breaker, call }) {
    for (const error of [status(400), status(404), status(408), status(429), failure({ reason: "too_large" })]) {
      const { attempt } = yield* failing(error)
      for (let i = 0; i < 30; i++) yield* Effect.either(call({ ...policy, repeatable: false }, attempt))
    }
    for (let i = 0; i < 30; i++) {
      const fiber = yield* Effect.fork(call(policy, Effect.never))
      yield* Effect.yieldNow()
      yield* Fiber.interrupt(fiber)
    }
    expect(yield* breaker.state).toBe("closed")
  })

  for (const error of [status(500), status(503), status(302), failure({ reason: "timeout" })]) {
    called(`opens at ${error.statusCode ?? error.reason}`, function* ({ breaker, call }) {
      const { attempt } = yield* failing(error)
      for (let i = 0; i < 5; i++) yield* Effect.either(call({ ...policy, repeatable: false }, attempt))
      expect(yield* breaker.state).toBe("open")
    })
  }

  called("takes malformed answers neither for failures nor for their end", function* ({ breaker, call }) {
    const malformed = yield* failing(failure({ reason: "malformed" }))
    const failed = yield* failing(status(500))
    for (let i = 0; i < 30; i++) yield* Effect.either(call(policy, malformed.attempt))
    expect(yield* breaker.state).toBe("closed")
    for (let i = 0; i < 5; i++) {
      yield* Effect.either(call(policy, malformed.attempt))
      yield* Effect.either(call(policy, failed.attempt))
    }
    expect(yield* breaker.state).toBe("open")
    yield* TestClock.adjust("10 seconds")
    for (let i = 0; i < 3; i++) {
      expect(Either.getLeft(yield* Effect.either(call(policy, malformed.attempt)))).toMatchObject({
        value: { reason: "malformed" }
      })
      expect(yield* breaker.state).toBe("half_open")
    }
    yield* call(policy, Effect.void)
    expect(yield* breaker.state).toBe("closed")
  })

  called("a defect of ours is not held against the upstream", function* ({ breaker, call }) {
    for (let i = 0; i < 10; i++) {
      expect(Exit.isFailure(yield* Effect.exit(call(policy, Effect.die("bug"))))).toBe(true)
    }
    expect(yield* breaker.state).toBe("closed")
  })
})

describe("time limits", () => {
  called("of a try, after which there is another, and of all tries together", function* ({ breaker, call }) {
    const tried = yield* Ref.make(0)
    const attempt = Effect.zipRight(
      Ref.update(tried, n => n + 1),
      Effect.never
    )
    const fiber = yield* Effect.fork(
      Effect.either(call({ ...policy, tryTimeout: "4 seconds", timeout: "10 seconds" }, attempt))
    )
    yield* TestClock.adjust("9999 millis")
    expect(yield* Fiber.poll(fiber)).toMatchObject({ _tag: "None" })
    expect(yield* Ref.get(tried)).toBe(3)
    // The jitter makes fractions of milliseconds, which TestClock rounds.
    yield* TestClock.adjust("2 millis")
    expect(Either.getLeft(yield* Fiber.join(fiber))).toMatchObject({ value: { reason: "timeout" } })
    expect(yield* breaker.state).toBe("closed")
  })
})

describe("metrics", () => {
  test.scoped("durations of single tries by operation and outcome, and retries", function* () {
    const { call } = yield* Resilience.make({ upstream: "measured", durations })
    const operation = "measured"
    const histogram = (outcome: string) =>
      Effect.map(
        Metric.value(durations.pipe(Metric.tagged("operation", operation), Metric.tagged("outcome", outcome))),
        ({ count, max }) => ({ count, max: Math.round(max) })
      )
    const attempts = yield* Ref.make(0)
    const attempt = Effect.flatMap(
      Ref.updateAndGet(attempts, n => n + 1),
      n => Effect.delay(n === 1 ? status(503) : Effect.void, n * 1000)
    )
    yield* finish(call({ ...policy, operation }, attempt))
    yield* finish(call({ ...policy, operation }, Effect.fail(status(404))))
    const fiber = yield* Effect.fork(call({ ...policy, operation }, Effect.never))
    yield* TestClock.adjust("3 seconds")
    yield* Fiber.interrupt(fiber)
    expect(yield* histogram("server_error")).toEqual({ count: 1, max: 1000 })
    expect(yield* histogram("ok")).toEqual({ count: 1, max: 2000 })
    expect(yield* histogram("client_error")).toEqual({ count: 1, max: 0 })
    expect(yield* histogram("interrupted")).toEqual({ count: 1, max: 3000 })
  })
})
