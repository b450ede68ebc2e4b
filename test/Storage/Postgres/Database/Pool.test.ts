/** The connections of a node: how many there are, when they end, and what becomes of long answers. */
import { expect } from "@effect/vitest"
import { Duration, Effect, Option, Redacted } from "effect"
import * as Pages from "../../../../src/Kv/ChangeFeed/Pages.ts"
import { ChangeLog } from "../../../../src/Kv/ChangeLog.ts"
import * as Pool from "../../../../src/Storage/Postgres/Database/Pool.ts"
import { newDatabase, optionsOf, withClient } from "../../../postgres/Databases.ts"
import { live, onPostgres, together } from "../../../postgres/Live.ts"
import * as Proxy from "../../../postgres/Proxy.ts"
import { onlyLong } from "../../../Scale.ts"
import { namespace, node, put } from "../Fixture.ts"
import { count, limitedRole, one } from "./Fixture.ts"

const pause = Effect.sleep("20 millis")

onPostgres("Postgres, connections", () => {
  live("statements share the connections that there are where the server refuses more", function* () {
    const admin = yield* newDatabase
    const { url } = yield* limitedRole(admin, 2)
    const options = { url: Redacted.make(url), isPooled: false, max: 10, statementTimeout: 10_000 }
    const asked = Array.from({ length: 60 })
    const pool = yield* Pool.make(options)
    // The server counts connections that are being made, and may refuse all of those that are made at once.
    expect(yield* pool.read(one)).toBe(1)
    for (let round = 0; round < 3; round++) {
      const answers = yield* Effect.forEach(asked, () => pool.read(one), {
        concurrency: "unbounded"
      })
      expect(answers).toEqual(asked.map(() => 1))
    }
    expect(pool.use.inUse + pool.use.idle).toBeLessThanOrEqual(2)
  })

  live("a statement that has waited too long for a connection takes none", function* () {
    const url = Redacted.make(yield* newDatabase)
    const pool = yield* Pool.make({ url, isPooled: false, max: 1, statementTimeout: 10_000 })
    const held = yield* pool.take
    yield* Effect.flip(pool.read(one, 50))
    held.release()
    expect(yield* pool.read(one)).toBe(1)
  })

  live("a busy node has as many as the documentation says", function* () {
    const url = yield* newDatabase
    const options = optionsOf(url)
    const busy = yield* node(options)
    yield* put(busy, "k", 1)
    // All requests wait for locks, so that each keeps its connection. New connections need the table of the log.
    const requests: ReadonlyArray<Effect.Effect<unknown, unknown>> = [
      ...Array.from({ length: 20 }, () => busy.store.get(namespace, "k")),
      ...Array.from({ length: 20 }, () => busy.store.list({ namespace, prefix: "", after: "", limit: 10 })),
      ...Array.from({ length: 5 }, () => busy.log.expire),
      ...Array.from({ length: 5 }, () => busy.log.trim(Duration.zero)),
      put(busy, "k", 2)
    ]
    let most = 0
    yield* withClient(url, function* (other) {
      yield* other("BEGIN")
      // In the order in which the background work of the node takes them, or the two might deadlock.
      yield* other("LOCK TABLE causeway.changes, causeway.entries IN ACCESS EXCLUSIVE MODE")
      yield* Effect.forEach(requests, request =>
        Effect.fork(Effect.forever(Effect.zipRight(Effect.ignore(request), pause)))
      )
      yield* Effect.repeat(
        Effect.tap(Effect.zipRight(pause, count(url)), now =>
          Effect.sync(() => {
            most = Math.max(most, now)
          })
        ),
        { until: () => most >= options.connections + 8 }
      )
      most = Math.max(most, yield* count(url))
      yield* other("ROLLBACK")
    })
    expect(most).toBe(options.connections + 8)
  })

  onlyLong(live)("a value that takes long to arrive is read, and so is what follows it", function* () {
    const url = yield* newDatabase
    const proxy = yield* Proxy.make(url)
    const text = "x".repeat(4 * 1024 * 1024)
    const [writer, reader] = [yield* node(url), yield* node(proxy.url)]
    yield* put(writer, "large", text)
    yield* put(writer, "small", 1)
    yield* reader.store.get(namespace, "small")
    proxy.set("slow")
    const keys = ["large", "large", "small", "small"]
    const read = yield* together(keys, key => reader.store.get(namespace, key))
    expect(read.map(entry => Option.getOrThrow(entry).value.length)).toEqual([text.length + 2, text.length + 2, 1, 1])
  })

  live("a page of the log that takes long to arrive is read", function* () {
    const url = yield* newDatabase
    const proxy = yield* Proxy.make(url)
    const [writer, reader] = [yield* node(url), yield* node(proxy.url)]
    yield* put(writer, "large", "x".repeat(4 * 1024 * 1024))
    const pages = yield* Effect.provideService(Pages.make, ChangeLog, reader.log)
    proxy.set("slow")
    expect((yield* pages.fresh({ after: 0, limit: 10, tenant: "" })).count).toBe(1)
  })

  live("one that dies after a large write does not stay away from the others", function* () {
    const url = yield* newDatabase
    const proxy = yield* Proxy.make(url)
    const pool = yield* Pool.make({
      url: Redacted.make(proxy.url),
      isPooled: false,
      max: 1,
      statementTimeout: 5000
    })
    yield* pool.read(one)
    // The text as it ends the message by which the limit is set back.
    proxy.set("black hole", "SET statement_timeout = 5000\u0000")
    yield* pool.run(one, 10_000, { serverLimit: 20_000 })
    yield* Effect.promise(() => proxy.affected)
    // Each attempt waits for a connection for 1.5 s.
    expect(yield* Effect.retry(pool.read(one, 10_000), { times: 10 })).toBe(1)
  })
})
