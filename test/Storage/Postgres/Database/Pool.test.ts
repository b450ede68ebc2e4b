/** The connections of a node: how many there are, when they end, and what becomes of long answers. */

import { randomUUID } from "node:crypto"
import { rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { expect } from "@effect/vitest"
import { Duration, Effect, Fiber, Option, Redacted } from "effect"
import { inject } from "vitest"
import * as Pages from "../../../../src/Kv/ChangeFeed/Pages.ts"
import { ChangeLog } from "../../../../src/Kv/ChangeLog.ts"
import * as Pool from "../../../../src/Storage/Postgres/Database/Pool.ts"
import { newDatabase, optionsOf, sql, withClient } from "../../../postgres/Databases.ts"
import { live, onPostgres, together } from "../../../postgres/Live.ts"
import * as Proxy from "../../../postgres/Proxy.ts"
import { onlyLong } from "../../../Scale.ts"
import { logged, namespace, node, put, ready } from "../Fixture.ts"
import { count, limitedRole, one, readOne } from "./Fixture.ts"

const pause = Effect.sleep("20 millis")

onPostgres("Postgres, connections", () => {
  live("statements share the connections that there are where the server refuses more", function* () {
    const admin = yield* newDatabase
    const { url } = yield* limitedRole(admin, 2)
    const options = { url: Redacted.make(url), isPooled: false, max: 10, statementTimeout: 10_000 }
    const asked = Array.from({ length: 60 })
    const pool = yield* Pool.make(options)
    // The server counts connections that are being made, and may refuse all of those that are made at once.
    expect(yield* readOne(pool)).toBe(1)
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
    yield* readOne(pool)
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
        { until: () => most >= options.connections + 6 }
      )
      most = Math.max(most, yield* count(url))
      yield* other("ROLLBACK")
    })
    expect(most).toBe(options.connections + 6)
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
    yield* readOne(pool)
    // The text as it ends the message by which the limit is set back.
    proxy.set("black hole", "SET statement_timeout = 5000\u0000")
    yield* pool.run(one, 10_000, { serverLimit: 20_000 })
    yield* Effect.promise(() => proxy.affected)
    // Each attempt waits for a connection for 1.5 s.
    expect(yield* Effect.retry(pool.read(one, 10_000), { times: 10 })).toBe(1)
  })
})

const missing = /^ENOENT: no such file or directory/

/** The address of a database with a file of a certificate that does not exist yet. It is read, and not used. */
const withFile = Effect.gen(function* () {
  const url = yield* newDatabase
  const file = join(inject("clusters"), `${randomUUID()}.pem`)
  yield* Effect.addFinalizer(() => Effect.sync(() => rmSync(file, { force: true })))
  return {
    admin: url,
    url: `${url}?sslmode=disable&sslrootcert=${file}`,
    write: Effect.sync(() => writeFileSync(file, "")),
    remove: Effect.sync(() => rmSync(file))
  }
})

onPostgres("Postgres, files of certificates", () => {
  live("statements that wait for a connection of a pool fail, and the process continues", function* () {
    const { admin, remove, url, write } = yield* withFile
    yield* write
    const pool = yield* Pool.make({ url: Redacted.make(url), isPooled: false, max: 1, statementTimeout: 60_000 })
    const read = pool.read(one, 60_000)
    expect(yield* readOne(pool)).toBe(1)
    const long = yield* Effect.fork(
      Effect.flip(pool.read({ text: "SELECT pg_sleep(60)", values: [], decode: noRow }, 60_000))
    )
    const running = sql(admin, "SELECT pid FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)'")
    yield* Effect.repeat(running, { until: rows => rows.length === 1 })
    const waiting = yield* Effect.fork(Effect.all([read, read, read].map(Effect.flip), { concurrency: "unbounded" }))
    yield* Effect.repeat(Effect.yieldNow(), { until: () => pool.use.waiting === 3 })
    yield* remove
    yield* sql(admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)'")
    yield* Fiber.join(long)
    for (const { reason } of yield* Fiber.join(waiting)) expect(reason).toMatch(missing)
    expect((yield* Effect.flip(read)).reason).toMatch(missing)
    yield* write
    expect(yield* readOne(pool)).toBe(1)
  })

  live("a node that starts without the file logs the reason, and is ready once the file exists", function* () {
    const { layer, lines } = logged()
    const { url, write } = yield* withFile
    const started = yield* Effect.provide(node(url), layer)
    expect(yield* started.store.ready).toBe(false)
    expect(yield* Effect.flip(put(started, "k", 1))).toMatchObject({
      reason: expect.stringContaining("not open: ENOENT")
    })
    const failures = lines.filter(line => line.includes("ENOENT"))
    expect(failures.length).toBeGreaterThan(0)
    expect(failures.filter(line => JSON.parse(line).logLevel !== "WARN")).toEqual([])
    yield* write
    yield* ready(started)
    expect(yield* put(started, "k", 1)).toMatchObject({ lastSeq: 1 })
  })
})

const noRow = (): void => {}
