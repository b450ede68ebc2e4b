import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import { assert, describe, it } from "@effect/vitest"
import { Clock, Effect, Fiber, FastCheck as fc, Option, Redacted, TestClock } from "effect"
import * as Arguments from "../scripts/load/Arguments.ts"
import { inBatches } from "../scripts/load/Batches.ts"
import * as Cities from "../scripts/load/Cities.ts"
import * as Load from "../scripts/load/Load.ts"
import * as Limits from "../src/base/Limits.ts"
import { times } from "./Scale.ts"

describe("batches", () => {
  const into = { namespace: "n" }

  it("have all entries in order, within their limits", () => {
    const entry = fc.record({ key: fc.string(), value: fc.jsonValue({ maxDepth: 2 }) })
    const bounds = { operations: fc.integer({ min: 1, max: 10 }), bytes: fc.integer({ min: 1, max: 2000 }) }
    fc.assert(
      fc.property(fc.array(entry, { maxLength: 40 }), fc.record(bounds), (entries, bounds) => {
        const batches = [...inBatches(entries, { ...bounds, ...into })]
        for (const batch of batches) {
          assert.isTrue(batch.length >= 1 && batch.length <= bounds.operations)
          assert.isTrue(batch.length === 1 || Buffer.byteLength(JSON.stringify(batch)) <= bounds.bytes + 1)
        }
        const operations = batches.flat()
        const expected = entries.map(({ key, value }) => ({ op: "set", namespace: "n", key, value }))
        assert.strictEqual(JSON.stringify(operations), JSON.stringify(expected))
      }),
      { numRuns: times(200) }
    )
  })
})

/** What the service answers: a status with a body, or nothing as the connection breaks. */
type Answer = { readonly status: number; readonly body: unknown; readonly headers?: Record<string, string> } | "broken"

const done: Answer = { status: 200, body: { ok: true, results: [{ version: 1 }] } }

/** Loads one entry from a service that gives these answers one after the other, then the last again and again. */
const loading = (answers: readonly [Answer, ...Array<Answer>]) =>
  Effect.gen(function* () {
    const begin = yield* Clock.currentTimeMillis
    const attempts: Array<number> = []
    const clock = yield* Effect.clock
    const fetch = async (): Promise<Response> => {
      const answer = answers[attempts.length] ?? answers[answers.length - 1] ?? answers[0]
      attempts.push(clock.unsafeCurrentTimeMillis() - begin)
      if (answer === "broken") throw new Error("cut")
      const { body, status, headers } = answer
      return new Response(JSON.stringify(body), { status, ...(headers === undefined ? {} : { headers }) })
    }
    const fiber = yield* Load.load({
      entries: [{ key: "k", value: 1 }],
      url: "http://service",
      key: Redacted.make("key"),
      namespace: "n",
      actor: "a",
      concurrency: 1,
      fetch
    }).pipe(Effect.either, Effect.fork)
    // Promises need turns of the event loop while time passes.
    while (Option.isNone(yield* Fiber.poll(fiber))) {
      yield* Effect.promise(() => new Promise(resolve => setImmediate(resolve)))
      yield* TestClock.adjust("250 millis")
    }
    const outcome = yield* Fiber.join(fiber)
    return { attempts, outcome: outcome._tag === "Left" ? outcome.left.message : outcome.right.entries }
  })

describe("a load", () => {
  it.effect("retries after broken connections and 503, with the delay of Retry-After", () =>
    Effect.gen(function* () {
      const busy: Answer = { status: 503, body: { error: "Store unavailable" }, headers: { "retry-after": "7" } }
      const { attempts, outcome } = yield* loading(["broken", busy, done])
      assert.strictEqual(outcome, 1)
      assert.strictEqual(attempts.length, 3)
      assert.isBelow(attempts[1]! - attempts[0]!, 1000)
      assert.isTrue(attempts[2]! - attempts[1]! >= 7000 && attempts[2]! - attempts[1]! <= 7250)
    })
  )

  it.effect("gives up after a minute, with exponential backoff up to 5 s", () =>
    Effect.gen(function* () {
      const { attempts, outcome } = yield* loading(["broken"])
      assert.strictEqual(outcome, "The service is unavailable: cut")
      const pauses = attempts.slice(1).map((at, index) => at - attempts[index]!)
      assert.isBelow(Math.max(...pauses), 5251)
      assert.isAtMost(attempts.at(-1)!, 65_000)
      assert.isAbove(attempts.at(-1)!, 55_000)
      assert.isBelow(attempts.length, 25)
    })
  )

  it.effect("ends at once if the service refuses, or is another server", () =>
    Effect.gen(function* () {
      const refused = yield* loading([{ status: 401, body: { error: "Unauthorized" } }, done])
      assert.deepStrictEqual(refused, { attempts: [0], outcome: "The service answers 401: Unauthorized" })
      const strange = yield* loading([{ status: 200, body: "<html>" }])
      assert.deepStrictEqual(strange.attempts, [0])
      assert.strictEqual(strange.outcome, "The service answers 200: The body is not what the service sends")
      const short = yield* loading([{ status: 200, body: { ok: true, results: [] } }])
      assert.strictEqual(short.outcome, "The service answers 200: 0 results for 1 operations")
    })
  )
})

describe("the cities", () => {
  it.effect("have a key each, within the limits of the service", () =>
    Effect.gen(function* () {
      const cities = yield* Cities.readCities
      const { entries, duplicates } = Cities.entriesOf(cities)
      assert.isAbove(entries.length, 150_000)
      assert.strictEqual(duplicates, 0)
      const { keyBytes } = yield* Limits.Limits
      assert.isTrue(entries.every(({ key }) => Buffer.byteLength(key) <= keyBytes))
    }).pipe(Effect.provide(NodeFileSystem.layer))
  )

  it("are skipped if another has the same key", () => {
    const city = { name: "Vila", lat: "42.5", lng: "1.5", country: "AD", admin1: "03", admin2: "" }
    const { entries, duplicates } = Cities.entriesOf([city, { ...city, admin1: "04" }, { ...city, lat: "42.6" }])
    assert.strictEqual(duplicates, 1)
    assert.deepStrictEqual(
      entries.map(({ key }) => key),
      ["AD/Vila/42.5,1.5", "AD/Vila/42.6,1.5"]
    )
    assert.deepStrictEqual(entries[0]?.value, city)
  })
})

describe("the loader's arguments", () => {
  it.effect("override the environment, where an empty variable is unset", () =>
    Effect.gen(function* () {
      const environment = { LOAD_NAMESPACE: "mine", LOAD_BATCH: "", KV_API_KEY: "secret", LOAD_CONCURRENCY: "9" }
      const given = yield* Arguments.read(["--concurrency", "2", "--url", "https://kv.example/base/"], environment)
      assert.deepStrictEqual(given, {
        url: "https://kv.example/base",
        key: Redacted.make("secret"),
        namespace: "mine",
        concurrency: 2,
        batch: 1000,
        count: Number.MAX_SAFE_INTEGER
      })
      assert.strictEqual(yield* Arguments.read(["-h"], {}), "help")
    })
  )

  it.effect("are all reported if invalid, each by the name it was given with", () =>
    Effect.gen(function* () {
      const { message } = yield* Effect.flip(Arguments.read(["--url", "ftp://x", "--batch", "0"], { LOAD_COUNT: "-1" }))
      assert.include(message, '--url: "ftp://x" is not an address')
      assert.include(message, '--batch: "0" is not a whole number from 1')
      assert.include(message, 'LOAD_COUNT: "-1" is not a whole number from 1')
      assert.include((yield* Effect.flip(Arguments.read(["--bogus"], {}))).message, "--bogus")
    })
  )
})
