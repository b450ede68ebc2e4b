/** Files of certificates that are missing while connections are made, as when they are replaced. */
import { randomUUID } from "node:crypto"
import { rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { expect } from "@effect/vitest"
import { Effect, Fiber, Redacted } from "effect"
import { inject } from "vitest"
import * as Pipeline from "../../../../src/Storage/Postgres/Database/Pipeline.ts"
import * as Pool from "../../../../src/Storage/Postgres/Database/Pool.ts"
import { newDatabase, sql } from "../../../postgres/Databases.ts"
import { live, onPostgres } from "../../../postgres/Live.ts"
import { logged, node, put, ready } from "../Fixture.ts"
import { one } from "./Fixture.ts"

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
  live("statements on a shared connection fail until the file exists, however many there were", function* () {
    const { url, write } = yield* withFile
    const pipeline = yield* Pipeline.make({ url: Redacted.make(url), statementTimeout: 1900 })
    const read = pipeline.run(one)
    const reasons = new Set<string>()
    // More statements in all than two connections may have unanswered.
    for (let round = 0; round < 3; round++) {
      const failures = yield* Effect.all(
        Array.from({ length: 4000 }, () => Effect.flip(read)),
        {
          concurrency: "unbounded"
        }
      )
      for (const { reason } of failures) reasons.add(reason)
    }
    expect([...reasons]).toEqual([expect.stringMatching(missing)])
    yield* write
    expect(yield* read).toBe(1)
  })

  live("statements that wait for a connection of a pool fail, and the process continues", function* () {
    const { admin, remove, url, write } = yield* withFile
    yield* write
    const pool = yield* Pool.make({ url: Redacted.make(url), isPooled: false, max: 1, statementTimeout: 60_000 })
    const read = pool.read(one, 60_000)
    expect(yield* read).toBe(1)
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
    expect(yield* read).toBe(1)
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
