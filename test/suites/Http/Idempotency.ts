import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { keys } from "../../Harness.ts"
import type { Answer } from "./Client.ts"
import {
  at,
  batch,
  bodyOf,
  type Check,
  call,
  changesOf,
  type EntryBody,
  type Extras,
  end,
  expectError,
  get,
  headersOf,
  listAt,
  put,
  remove,
  type Site,
  space
} from "./Fixture.ts"

/** A request with an idempotency key. */
const keyed = (key: string, extras: Extras = {}): Extras => ({
  ...extras,
  headers: { ...extras.headers, "idempotency-key": key }
})

let names = 0

/** A key that no other case uses. */
const fresh = (): string => `key ${++names}`

/** What expires soon, and how it was written. */
interface Written {
  readonly answers: ReadonlyArray<Answer>
  readonly expiresAt: number
  readonly inBatch: Effect.Effect<Answer, Error, Site>
  readonly operations: ReadonlyArray<object>
  readonly set: Effect.Effect<Answer, Error, Site>
}

const reused = "This Idempotency-Key was used for another request"

/** Requests with an `Idempotency-Key`. */
export const idempotency = (check: Check) => {
  check("a repeated request is answered as the first time, byte for byte, and writes nothing", function* () {
    const namespace = space()
    yield* put(namespace, "gone", 1)
    const start = yield* end
    const operations = [
      { op: "set", namespace, key: "b", value: { a: [1.0, "é"] }, ttlMs: 60_000 },
      { op: "delete", namespace, key: "gone" },
      { op: "delete", namespace, key: "none" }
    ]
    const requests = [
      [fresh(), (key: string) => put(namespace, "k", { a: 1 }, keyed(key))],
      [
        fresh(),
        (key: string) =>
          call("PUT", at(namespace, "t"), keyed(key, { json: { value: "t", actor: "anna", ttlMs: 60_000 } }))
      ],
      [fresh(), (key: string) => put(namespace, "k", 2, keyed(key, { headers: { "if-match": '"1"' } }))],
      [fresh(), (key: string) => batch(operations, keyed(key))],
      [fresh(), (key: string) => batch([], keyed(key))],
      [fresh(), (key: string) => remove(namespace, "none", keyed(key))],
      [fresh(), (key: string) => remove(namespace, "k", keyed(key))],
      [fresh(), (key: string) => call("DELETE", `${listAt(namespace)}?prefix=&limit=1`, keyed(key))]
    ] as const
    const first = yield* Effect.forEach(requests, ([key, send]) => send(key))
    expect(first.map(({ status }) => status)).toEqual(requests.map(() => 200))
    const written = yield* changesOf(namespace, start)
    yield* put(namespace, "k", "later")
    const again = yield* Effect.forEach([...requests].reverse(), ([key, send]) => send(key))
    for (const [index, answer] of again.reverse().entries()) {
      expect([answer.status, answer.text, headersOf(answer)]).toEqual([
        200,
        first[index]!.text,
        headersOf(first[index]!)
      ])
    }
    expect(yield* changesOf(namespace, start)).toHaveLength(written.length + 1)
  })

  check("the same request may be spelled in another way", function* () {
    const namespace = space()
    const key = fresh()
    const send = (body: string, tag: string) =>
      call("PUT", at(namespace, "k"), keyed(key, { body, headers: { "if-none-match": tag } }))
    const first = yield* send('{"value":{"b":1,"a":2},"actor":"api"}', "*")
    const again = yield* send('{ "value" : { "b" : 1, "a" : 2 } }', " * ")
    expect([again.status, again.text]).toEqual([200, first.text])
  })

  check("another request under the same key is 422 and writes nothing", function* () {
    const namespace = space()
    const key = fresh()
    expect((yield* put(namespace, "k", 1, keyed(key))).status).toBe(200)
    const start = yield* end
    const set = { op: "set", namespace, key: "k", value: 1 }
    const others = [
      put(namespace, "k", 2, keyed(key)),
      put(namespace, "k", 1, keyed(key, { headers: { "if-match": '"1"' } })),
      call("PUT", at(namespace, "k"), keyed(key, { json: { value: 1, ttlMs: 1000 } })),
      // It would be 400 by itself.
      call("PUT", at(namespace, "k"), keyed(key, { json: { value: 1, expiresAt: 1000 } })),
      remove(namespace, "k", keyed(key)),
      batch([set], keyed(key)),
      batch([], keyed(key)),
      call("DELETE", `${listAt(namespace)}?prefix=k`, keyed(key))
    ]
    for (const other of others) expectError(yield* other, 422, reused)
    expect(yield* changesOf(namespace, start)).toEqual([])
    expect((yield* get(namespace, "k")).headers.etag).toBe('"1"')
  })

  check("a request that was refused is not remembered, and one that is malformed takes no key", function* () {
    const namespace = space()
    const key = fresh()
    const conditional = keyed(key, { headers: { "if-match": '"1"' } })
    expectError(yield* put(namespace, "k", 2, conditional), 412, "absent")
    expectError(yield* put(namespace, "k", 1, keyed(key, { body: "{" })), 400, "")
    expectError(yield* call("PUT", at(namespace, "k"), keyed(key, { json: { value: 1, ttl: 1 } })), 400, "ttl")
    expectError(
      yield* call("PUT", at(namespace, "k"), keyed(key, { json: { value: 1, expiresAt: 1000 } })),
      400,
      "expiresAt must lie in the future"
    )
    expectError(yield* put(namespace, "k", 1, keyed(key, { key: keys.read })), 403, "Forbidden")
    yield* put(namespace, "k", 1)
    expect((yield* put(namespace, "k", 2, conditional)).headers.etag).toBe('"2"')
    expect((yield* put(namespace, "k", 2, conditional)).headers.etag).toBe('"2"')
    // The credential is asked for before the key is looked up.
    expectError(yield* put(namespace, "k", 2, { ...conditional, key: keys.read }), 403, "Forbidden")
    expectError(yield* put(namespace, "k", 2, { ...conditional, key: null }), 401, "Unauthorized")
  })

  check("a time that has passed since does not change the answer", function* () {
    const namespace = space()
    /** Writes what expires so many milliseconds later. A machine that pauses for longer needs more of them. */
    const written = (millis: number): Effect.Effect<Written, Error, Site> =>
      Effect.gen(function* () {
        const [one, other] = [fresh(), fresh()]
        const expiresAt = bodyOf<EntryBody>(yield* put(namespace, "now", 1)).updatedAt + millis
        const set = call("PUT", at(namespace, "k"), keyed(one, { json: { value: 1, expiresAt } }))
        const operations = [
          { op: "delete", namespace, key: "none" },
          { op: "set", namespace, key: "b", value: 1, expiresAt }
        ]
        const inBatch = batch(operations, keyed(other))
        const answers = [yield* set, yield* inBatch]
        if (millis < 600_000 && answers.some(({ status }) => status === 400)) return yield* written(2 * millis)
        return { answers, expiresAt, inBatch, operations, set }
      })
    const { answers, expiresAt, inBatch, operations, set } = yield* written(300)
    expect(answers.map(({ status }) => status)).toEqual([200, 200])
    // Until the service itself says that the time has passed.
    const isOver = Effect.map(
      call("PUT", at(namespace, "probe"), { json: { value: 1, expiresAt } }),
      ({ status }) => status === 400
    )
    yield* Effect.repeat(isOver, { until: over => over })
    expect([(yield* set).text, (yield* inBatch).text]).toEqual(answers.map(({ text }) => text))
    expectError(yield* batch(operations, keyed(fresh())), 400, "operations[1].expiresAt must lie in the future")
  })

  check("a key has 1 to 256 printable characters of ASCII", function* () {
    const namespace = space()
    for (const key of ["", " ", "x".repeat(257), "k\u00e9y", "a\tb"]) {
      for (const answer of [
        yield* put(namespace, "k", 1, keyed(key)),
        yield* remove(namespace, "k", keyed(key)),
        yield* batch([], keyed(key)),
        yield* call("DELETE", `${listAt(namespace)}?prefix=`, keyed(key))
      ]) {
        expectError(answer, 400, "idempotency-key: must be 1 to 256 printable characters of ASCII")
      }
    }
    expect((yield* get(namespace, "k")).status).toBe(404)
    for (const key of ["1", "x".repeat(256), '"8e03978e-40d5-43dd-bc93-6894a57f9324"', "a, b ~"]) {
      expect((yield* put(namespace, "k", key, keyed(`${key.slice(0, 240)}${fresh()}`))).status).toBe(200)
      expect((yield* put(namespace, "k", key, keyed(key.padEnd(1)))).status).toBe(200)
    }
    // Requests that do not write take none.
    expect((yield* get(namespace, "k", keyed(""))).status).toBe(200)
  })

  check("of requests at the same time one is applied; the others are 409, or answered as it is", function* () {
    const namespace = space()
    const key = fresh()
    const answers = yield* Effect.forEach(
      Array.from({ length: 20 }),
      () => put(namespace, "k", "x".repeat(10_000), keyed(key)),
      { concurrency: "unbounded" }
    )
    const applied = answers.filter(({ status }) => status === 200)
    expect(new Set(applied.map(({ text }) => text)).size).toBe(1)
    for (const answer of answers.filter(({ status }) => status !== 200)) {
      expectError(answer, 409, "still in progress")
      expect(answer.headers["retry-after"]).toBe("1")
    }
    expect((yield* get(namespace, "k")).headers.etag).toBe('"1"')
  })
}
