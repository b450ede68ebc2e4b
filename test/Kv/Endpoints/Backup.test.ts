/** The handler of backups, over stores with failures that real ones rarely have. */
import { describe, expect } from "@effect/vitest"
import { Cause, type Context, Duration, Effect, Exit, Fiber, Stream, TestClock } from "effect"
import { isApiError, statusOf } from "../../../src/Http/ApiError.ts"
import type { Incoming } from "../../../src/Http/Endpoints.ts"
import * as BackupHandler from "../../../src/Kv/Endpoints/Backup.ts"
import { BackupRefused, Store, StoreBusy, StoreUnavailable } from "../../../src/Kv/Store.ts"
import * as Memory from "../../../src/Storage/Memory.ts"
import { test } from "../../Tests.ts"

const incoming: Incoming = {
  identity: { access: "write" },
  target: "/api/v1/backup",
  authorization: undefined,
  upgradeProblem: undefined,
  origin: undefined,
  host: undefined,
  credential: undefined,
  method: "GET",
  url: "/api/v1/backup",
  headers: {},
  remoteAddress: undefined
}

type Turn = Context.Tag.Service<Store>["backup"]

const answer = (turn: Turn, request = incoming) =>
  Effect.gen(function* () {
    const store = { ...(yield* Store), backup: turn }
    return yield* BackupHandler.make({ store })({ incoming: request })
  }).pipe(Effect.provide(Memory.layer))

const refused = (turn: Turn, request = incoming) =>
  Effect.map(Effect.flip(answer(turn, request)), error => {
    expect(isApiError(error)).toBe(true)
    return { status: statusOf(error), error: error.error, headers: error.headers }
  })

/** A backup that sends one chunk and then stalls. */
const silent = (onRemoved: () => void): Turn =>
  Effect.succeed({
    copy: Effect.acquireRelease(
      Effect.succeed({
        bytes: 1024 * 1024,
        sha256: "00ff".repeat(16),
        lastSeq: 7,
        epoch: "e",
        content: Stream.concat(Stream.succeed(new Uint8Array(3)), Stream.never)
      }),
      () => Effect.sync(onRemoved)
    )
  })

describe("a backup over HTTP", () => {
  test.effect(
    "names the alternative if a store has none, and the reason if one is impossible now, also for HEAD",
    function* () {
      const none = "The store is in memory and has no backup; causeway export copies its entries"
      const memory = yield* Effect.provide(Store, Memory.layer)
      for (const [turn, expected] of [
        [memory.backup, { status: 501, error: none }],
        [
          new BackupRefused({ cause: "NoRoom", message: "The disk is full" }),
          { status: 507, error: "The disk is full" }
        ],
        [new StoreBusy({ retryAfterSeconds: 10 }), { status: 503, headers: { "retry-after": "10" } }],
        [new StoreUnavailable({ reason: "secret" }), { status: 503, error: "Store unavailable" }]
      ] as const) {
        const answered = yield* refused(turn)
        expect(answered).toMatchObject(expected)
        expect(yield* refused(turn, { ...incoming, method: "HEAD" })).toEqual(answered)
      }
    }
  )

  test.effect("is refused to a tenant, and not made for HEAD", function* () {
    let turns = 0
    const uncopied: Turn = Effect.acquireRelease(
      Effect.sync(() => {
        turns++
        return { copy: Effect.dieMessage("A copy was made") }
      }),
      () => Effect.sync(() => turns--)
    )
    const ofTenant = { ...incoming, identity: { access: "write", tenant: "acme" } } as const
    const head = { ...incoming, method: "HEAD" }
    for (const method of ["GET", "HEAD"]) {
      expect(yield* refused(Effect.dieMessage("A turn was taken"), { ...ofTenant, method })).toMatchObject({
        status: 403
      })
    }
    expect(yield* answer(uncopied, head)).toMatchObject({ status: 200, body: undefined })
    expect(turns).toBe(0)
  })

  test.effect("is aborted if the client takes too long, and then removed", function* () {
    let removed = 0
    const { body, headers, release } = yield* answer(silent(() => removed++))
    expect(headers).toMatchObject({
      "content-type": "application/vnd.sqlite3",
      "content-length": "1048576",
      "repr-digest": `sha-256=:${Buffer.from("00ff".repeat(16), "hex").toString("base64")}:`,
      "kv-last-seq": "7",
      "kv-epoch": "e"
    })
    const reading = yield* Effect.fork(Stream.runDrain(body as Stream.Stream<Uint8Array>))
    yield* TestClock.adjust(Duration.subtract(BackupHandler.timeFor(1024 * 1024), "1 second"))
    expect(reading.unsafePoll()).toBe(null)
    yield* TestClock.adjust("1 second")
    const exit = yield* Fiber.await(reading)
    expect(Exit.isFailure(exit) && Cause.pretty(exit.cause)).toMatch(/The client has not read the backup within 1m 1s/)
    expect(removed).toBe(0)
    yield* release!
    expect(removed).toBe(1)
  })
})
