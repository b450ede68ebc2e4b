/** The connections of a node: how many there are, when they end, and what becomes of long answers. */
import { randomUUID } from "node:crypto"
import { describe, expect, it } from "@effect/vitest"
import { Duration, Effect, Option, Redacted } from "effect"
import { vi } from "vitest"
import * as Pipeline from "../../../../src/Storage/Postgres/Database/Pipeline.ts"
import * as Pool from "../../../../src/Storage/Postgres/Database/Pool.ts"
import { createDatabase, execute, optionsOf, withClient } from "../../../postgres/Databases.ts"
import * as Proxy from "../../../postgres/Proxy.ts"
import { reasonToSkip } from "../../../postgres/Server.ts"
import { namespace, node, put, quiet } from "../Fixture.ts"

const one = { name: "one", text: "SELECT 1" }

const pause = Effect.sleep("20 millis")

const count = (url: string) =>
  Effect.promise(async () => {
    const [row] = await execute(
      url,
      `SELECT count(*)::int AS count FROM pg_stat_activity
       WHERE datname = current_database() AND application_name = 'causeway'`
    )
    return Number(row!.count)
  })

describe.skipIf(reasonToSkip !== undefined)(`Postgres, connections ${reasonToSkip ?? ""}`, () => {
  it.scopedLive("statements share the connections that there are where the server refuses more", () =>
    Effect.gen(function* () {
      const admin = yield* Effect.promise(() => createDatabase())
      const role = `few_${randomUUID().replaceAll("-", "")}`
      yield* Effect.promise(() => execute(admin, `CREATE ROLE ${role} LOGIN CONNECTION LIMIT 2`))
      const url = Redacted.make(admin.replace("postgres@", `${role}@`))
      const options = { url, isPooled: false, max: 10, statementTimeout: 10_000 }
      const asked = Array.from({ length: 60 })
      yield* Effect.scoped(
        Effect.gen(function* () {
          const pool = yield* Pool.make(options)
          // The server counts connections that are being made, and may refuse all of those that are made at once.
          expect(yield* pool.read(one, [], rows => rows.length)).toBe(1)
          for (let round = 0; round < 3; round++) {
            const answers = yield* Effect.forEach(asked, () => pool.read(one, [], rows => rows.length), {
              concurrency: "unbounded"
            })
            expect(answers).toEqual(asked.map(() => 1))
          }
          expect(pool.use.inUse + pool.use.idle).toBeLessThanOrEqual(2)
        })
      )
      yield* Effect.promise(() => execute(admin, `ALTER ROLE ${role} CONNECTION LIMIT 1`))
      yield* Effect.repeat(count(admin), { until: now => now === 0 })
      const pipeline = yield* Pipeline.make(options)
      // The server may still count the connection of a process that is ending.
      expect(
        yield* Effect.retry(
          pipeline.run(one, [], rows => rows.length),
          { while: () => Effect.as(pause, true) }
        )
      ).toBe(1)
      for (let round = 0; round < 3; round++) {
        const answers = yield* Effect.forEach(asked, () => pipeline.run(one, [], rows => rows.length), {
          concurrency: "unbounded"
        })
        expect(answers).toEqual(asked.map(() => 1))
      }
    })
  )

  it.scopedLive("a busy node has as many as the documentation says", () =>
    Effect.gen(function* () {
      const url = yield* Effect.promise(() => createDatabase())
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
      yield* withClient(url, other =>
        Effect.gen(function* () {
          yield* other("BEGIN")
          yield* other("LOCK TABLE causeway.entries, causeway.changes IN ACCESS EXCLUSIVE MODE")
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
      )
      expect(most).toBe(options.connections + 8)
    }).pipe(Effect.provide(quiet))
  )

  it.scopedLive(
    "one for reads of single entries ends after a minute without use, and another is made for the next",
    () =>
      Effect.gen(function* () {
        const url = yield* Effect.promise(() => createDatabase())
        yield* Effect.acquireRelease(
          Effect.sync(() => vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] })),
          () => Effect.sync(() => vi.useRealTimers())
        )
        const pipeline = yield* Pipeline.make({ url: Redacted.make(url), statementTimeout: 1900 })
        const read = pipeline.run(one, [], rows => rows[0]![0])
        expect(yield* read).toBe(1)
        vi.advanceTimersByTime(59_000)
        expect(yield* read).toBe(1)
        vi.advanceTimersByTime(59_000)
        expect(yield* count(url)).toBe(1)
        vi.advanceTimersByTime(2000)
        yield* Effect.repeat(count(url), { until: now => now === 0 })
        expect(yield* read).toBe(1)
      })
  )

  it.scopedLive("a value that takes long to arrive is read, and so is what follows it", () =>
    Effect.gen(function* () {
      const url = yield* Effect.promise(() => createDatabase())
      const proxy = yield* Proxy.make(url)
      const text = "x".repeat(4 * 1024 * 1024)
      const [writer, reader] = [yield* node(optionsOf(url)), yield* node(optionsOf(proxy.url))]
      yield* put(writer, "large", text)
      yield* put(writer, "small", 1)
      yield* reader.store.get(namespace, "small")
      proxy.set("slow")
      const keys = ["large", "large", "small", "small"]
      const read = yield* Effect.forEach(keys, key => reader.store.get(namespace, key), { concurrency: "unbounded" })
      expect(read.map(entry => Option.getOrThrow(entry).value.length)).toEqual([text.length + 2, text.length + 2, 1, 1])
    }).pipe(Effect.provide(quiet))
  )

  it.scopedLive("one that dies after a large write does not stay away from the others", () =>
    Effect.gen(function* () {
      const url = yield* Effect.promise(() => createDatabase())
      const proxy = yield* Proxy.make(url)
      const pool = yield* Pool.make({
        url: Redacted.make(proxy.url),
        isPooled: false,
        max: 1,
        statementTimeout: 5000
      })
      yield* pool.read(one, [], () => undefined)
      // The text as it ends the message by which the limit is set back.
      proxy.set("black hole", "SET statement_timeout = 5000\u0000")
      yield* pool.run(one, [], 10_000, () => undefined, { serverLimit: 20_000 })
      yield* Effect.promise(() => proxy.affected)
      // Each attempt waits for a connection for 1.5 s.
      expect(
        yield* Effect.retry(
          pool.read(one, [], rows => rows[0]![0], 10_000),
          { times: 10 }
        )
      ).toBe(1)
    })
  )
})
