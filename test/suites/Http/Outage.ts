import { expect } from "@effect/vitest"
import { Effect, Exit, Layer, Stream } from "effect"
import * as Direct from "../../../src/base/Direct.ts"
import { JsonText } from "../../../src/base/Json/JsonText.ts"
import { alwaysDue, ChangeLog } from "../../../src/Kv/ChangeLog.ts"
import { encode } from "../../../src/Kv/Entry.ts"
import { Store, StoreBusy, StoreUnavailable } from "../../../src/Kv/Store.ts"
import { keys } from "../../Harness.ts"
import { at, batch, type Check, call, expectError, get, headersOf, listAt, put, remove } from "./Fixture.ts"

const failing = (
  fail: Effect.Effect<never, StoreUnavailable>,
  commit: Effect.Effect<never, StoreUnavailable | StoreBusy> = fail
): Layer.Layer<Store | ChangeLog> =>
  Layer.mergeAll(
    Layer.succeed(Store, {
      get: () => fail,
      getMany: () => fail,
      list: () => fail,
      listAll: () => commit,
      namespaces: () => fail,
      tenants: () => fail,
      commit: () => commit,
      backup: fail,
      now: () => 0,
      ready: Effect.succeed(false)
    }),
    Layer.succeed(ChangeLog, {
      read: () => fail,
      history: fail,
      lastSeq: fail,
      awaitPast: () => Effect.never,
      trim: () => fail,
      expire: fail,
      due: fail
    })
  )

/** More than all buffers hold, so that a part is sent before the failure. */
const longValue = JsonText(JSON.stringify("x".repeat(256 * 1024)))

const secret = "disk 7 of host db-3 is on fire"

/** A store that cannot be reached. */
export const unavailable = failing(new StoreUnavailable({ reason: secret }))

/** A store that serves reads and refuses writes for three seconds. */
export const busy: Layer.Layer<Store | ChangeLog> = Layer.mergeAll(
  Layer.succeed(Store, {
    get: () => Effect.succeedNone,
    getMany: () => Effect.succeed({ entries: [], lastSeq: 0, epoch: "e" }),
    list: ({ isCounted }) =>
      isCounted === true
        ? new StoreBusy({ retryAfterSeconds: 3 })
        : Effect.succeed({ entries: [], lastSeq: 0, epoch: "e", more: true }),
    listAll: () => new StoreBusy({ retryAfterSeconds: 3 }),
    namespaces: () => Effect.succeed({ namespaces: [], lastSeq: 0, epoch: "e", more: false }),
    tenants: () => Effect.succeed({ tenants: [], lastSeq: 0, epoch: "e", more: false }),
    commit: () => new StoreBusy({ retryAfterSeconds: 3 }),
    backup: new StoreBusy({ retryAfterSeconds: 3 }),
    now: () => 0,
    ready: Effect.succeed(true)
  }),
  Layer.succeed(ChangeLog, {
    read: () => Effect.succeed({ changes: [], lastSeq: 0, epoch: "e", isComplete: false }),
    history: Effect.succeed(0),
    lastSeq: Effect.succeed(0),
    awaitPast: () => Effect.never,
    trim: () => Effect.succeed(0),
    expire: Effect.succeed(0),
    due: alwaysDue
  })
)

/** A store with a bug. */
export const broken = failing(Effect.die(new Error(secret)))

/** The same, whose gets and commits are direct. */
const direct = (
  store: Layer.Layer<Store | ChangeLog>,
  effect: Effect.Effect<never, StoreUnavailable | StoreBusy>
): Layer.Layer<Store | ChangeLog> =>
  Layer.effect(
    Store,
    Effect.map(Store, store => ({
      ...store,
      get: (namespace: string, key: string) => Direct.catchAll(store.get(namespace, key), Effect.fail),
      commit: () => effect
    }))
  ).pipe(Layer.provideMerge(store))

/** An effect that ends a moment later. */
const later = <E>(exit: Exit.Exit<never, E>): Effect.Effect<never, E> =>
  Direct.async(resume => {
    const pending = setImmediate(() => resume(exit))
    return () => clearImmediate(pending)
  })

const throwing = (): never => {
  throw new Error(secret)
}

/** `unavailable`, with commits that fail at once. */
export const failingAtOnce = direct(
  unavailable,
  Direct.suspend(() => Exit.fail(new StoreUnavailable({ reason: secret })))
)

/** `busy`, where a commit fails a moment later. */
export const busyLater = direct(busy, later(Exit.fail(new StoreBusy({ retryAfterSeconds: 3 }))))

/** `broken`, where a commit ends with its defect a moment later. */
export const brokenLater = direct(broken, later(Exit.die(new Error(secret))))

/** `broken`, where a commit throws. */
export const brokenAtOnce = direct(broken, Direct.suspend(throwing))

/** `broken`, where a commit throws as it begins to wait. */
export const brokenAtRegistration = direct(broken, Direct.async(throwing))

/** A store that fails in the middle of a long list. */
export const failingHalfWay: Layer.Layer<Store | ChangeLog> = Layer.effect(
  Store,
  Effect.map(Store, store => ({
    ...store,
    list: () => Effect.succeed({ entries: [], lastSeq: 0, epoch: "e", more: true }),
    listAll: () =>
      Effect.succeed({
        lastSeq: 0,
        epoch: "e",
        portions: Stream.concat(
          Stream.make([
            encode({
              namespace: "n",
              key: "k",
              value: longValue,
              version: 1,
              updatedBy: "api",
              updatedAt: 0,
              expiresAt: null
            })
          ]),
          Stream.fail(new StoreUnavailable({ reason: secret }))
        )
      })
  }))
).pipe(Layer.provideMerge(busy))

const everything = [
  ["GET", listAt("n")],
  ["GET", `${listAt("n")}?limit=1`],
  ["GET", at("n", "k")],
  ["PUT", at("n", "k")],
  ["DELETE", at("n", "k")],
  ["POST", "/api/v1/batch"],
  ["GET", "/api/v1/changes"],
  ["GET", "/api/v1/changes?wait=60"],
  ["GET", "/api/v1/changes/stream"]
] as const

/** The options of a request. */
const extrasOf = (method: string) => {
  if (method === "PUT") return { json: { value: 1 } }
  return method === "POST" ? { json: { operations: [{ op: "delete", namespace: "n", key: "k" }] } } : {}
}

const json = { "content-type": "application/json" }

/** While the store is unavailable. */
export const duringOutage = (check: Check) => {
  check("every key-value route is 503 with Retry-After, without the reason", function* () {
    for (const [method, target] of everything) {
      const answer = yield* call(method, target, extrasOf(method))
      expect([target, answer.status, answer.text]).toEqual([target, 503, '{"error":"Store unavailable"}'])
      expect(headersOf(answer)).toEqual({ ...json, "retry-after": "1" })
    }
  })

  check("errors of a request, or of its credential, still come first", function* () {
    expect((yield* get("n", "k", { key: null })).status).toBe(401)
    expect((yield* remove("n", "k", { key: keys.read })).status).toBe(403)
    expect((yield* put("n", "x".repeat(2000), 1)).status).toBe(400)
    expect((yield* call("PUT", at("n", "k"), { body: "{" })).status).toBe(400)
    expect((yield* batch([])).status).toBe(200)
  })

  check("the service is alive and says that it is not ready, with 200", function* () {
    for (const [target, text] of [
      ["/api/v1/health", '{"ok":true}'],
      ["/api/v1/ready", '{"ok":false}'],
      ["/api/v1/cluster/status", '{"ok":false,"mode":"store"}'],
      ["/api/v1/cluster/leader", '{"leader":null,"address":null,"mode":"store"}']
    ] as const) {
      const answer = yield* call("GET", target)
      expect([answer.status, answer.text, headersOf(answer)]).toEqual([200, text, json])
    }
    expect((yield* call("POST", "/api/v1/cluster/join", { json: {} })).status).toBe(410)
    expect((yield* call("GET", "/api/v1/openapi.json")).status).toBe(200)
  })

  check("the status shows that the service is not ready, if that is requested", function* () {
    for (const [query, status] of [
      ["strict=1", 503],
      ["strict=0", 200],
      ["other=1", 200]
    ] as const) {
      const answer = yield* call("GET", `/api/v1/ready?${query}`, { key: null })
      expect([query, answer.status, answer.text, headersOf(answer)]).toEqual([query, status, '{"ok":false}', json])
    }
    const misspelled = yield* call("GET", "/api/v1/ready?strict=yes", { key: null })
    expectError(misspelled, 400, 'strict: must be 0 or 1, not "yes"')
  })
}

/** While the store refuses writes. */
export const whileBusy = (check: Check) => {
  check("a write is 503 with Retry-After; reads continue", function* () {
    const refused = [
      yield* put("n", "k", 1),
      yield* remove("n", "k"),
      yield* batch([{ op: "delete", namespace: "n", key: "k" }])
    ]
    for (const answer of refused) expectError(answer, 503, "Too many requests are waiting for the store")
    const list = yield* call("GET", listAt("n"))
    expectError(list, 503, "Too many whole lists are being read; use limit")
    const counted = yield* call("GET", `${listAt("n")}?limit=1&count=1`)
    expectError(counted, 503, "Too many lists are being counted; leave count out, or try again")
    for (const answer of [...refused, list, counted]) expect(headersOf(answer)).toEqual({ ...json, "retry-after": "3" })
    expectError(yield* get("n", "k"), 404, "Not found")
    expect((yield* call("GET", "/api/v1/ready")).text).toBe('{"ok":true}')
  })
}

/** When the store has a bug. */
export const whenBroken = (check: Check) => {
  check("a defect is 500 without detail, on a connection that stays open", function* () {
    for (const [method, target] of everything) {
      const answer = yield* call(method, target, extrasOf(method))
      expect([target, answer.status, answer.text]).toEqual([target, 500, '{"error":"Internal server error"}'])
      expect(headersOf(answer)).toEqual(json)
    }
    expect((yield* call("GET", "/api/v1/health")).text).toBe('{"ok":true}')
  })
}

/** When the store fails in the middle of a list. */
export const whenCut = (check: Check) => {
  check("a list that fails half-way is cut, so that clients notice it", function* () {
    for (const headers of [{}, { "accept-encoding": "gzip" }]) {
      const outcome = yield* Effect.either(call("GET", listAt("n"), { headers }))
      expect(outcome._tag).toBe("Left")
    }
    expect((yield* call("GET", "/api/v1/health")).text).toBe('{"ok":true}')
  })
}
