/** Copies of stores in PostgreSQL while processes write to them or start there. */
import { existsSync } from "node:fs"
import { join } from "node:path"
import { expect } from "@effect/vitest"
import Database from "better-sqlite3"
import { Effect, Fiber, Layer, Redacted, type Scope } from "effect"
import * as Opening from "../../../src/Storage/Postgres/Opening.ts"
import * as Sqlite from "../../../src/Storage/Sqlite.ts"
import * as PostgresCopy from "../../../src/Storage/StoreCopy/Postgres.ts"
import * as StoreCopy from "../../../src/Storage/StoreCopy.ts"
import { newDatabase, sql, withClient } from "../../postgres/Databases.ts"
import { live, onPostgres, quiet } from "../../postgres/Live.ts"
import * as Opened from "../../postgres/Opened.ts"
import * as Proxy from "../../postgres/Proxy.ts"
import { put as putInStore } from "../../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"
import { limitRole, node, put, unlimited } from "../Postgres/Fixture.ts"
import { database, files, refusal } from "./Fixture.ts"

/** A database with one entry, that no node serves. */
const filled = Effect.gen(function* () {
  const url = yield* newDatabase
  yield* Effect.scoped(Effect.flatMap(node(url), first => put(first, "before", 1)))
  return url
})

/** A directory whose store has one entry. */
const filledDirectory = Effect.gen(function* () {
  const directory = yield* temporaryDirectory
  yield* Effect.provide(
    putInStore("n", "carried", 1),
    Layer.provide(Sqlite.layer({ directory, writer: "inline" }), quiet)
  )
  return directory
})

/** Until so many sessions of a database wait for locks, or more: nodes have background work. */
const areWaiting = (url: string, sessions: number) =>
  Effect.repeat(
    Effect.delay(
      sql(
        url,
        `SELECT count(*)::int AS waiting FROM pg_stat_activity
         WHERE datname = current_database() AND wait_event_type = 'Lock'`
      ),
      "10 millis"
    ),
    { until: ([row]) => Number(row?.waiting) >= sessions }
  )

const keysIn = (url: string) =>
  Effect.map(sql(url, "SELECT key FROM causeway.entries ORDER BY key"), rows => rows.map(({ key }) => key))

/** Does something once, while a copy is being made. */
const during = <E>(body: Effect.Effect<void, E>) => {
  let isDone = false
  return () =>
    Effect.suspend(() => {
      if (isDone) return Effect.void
      isDone = true
      return Effect.orDie(body)
    })
}

const newLease = "causeway.renew_lease(gen_random_uuid(), 60000, true)"

onPostgres("Copies of stores in PostgreSQL", () => {
  live("have what was written while they waited for their locks", function* () {
    const url = yield* filled
    const target = yield* temporaryDirectory
    // Without a lease, as after an outage of the database.
    const writer = yield* node(url)
    const [written, copied] = yield* withClient(url, function* (run) {
      yield* run("BEGIN; SELECT FROM causeway.log FOR UPDATE")
      const writing = yield* Effect.fork(put(writer, "acknowledged", 1))
      yield* areWaiting(url, 1)
      const copying = yield* Effect.fork(StoreCopy.copy({ from: database(url), to: files(target) }))
      yield* areWaiting(url, 2)
      yield* run("COMMIT")
      return [yield* Fiber.join(writing), yield* Fiber.join(copying)] as const
    })
    expect(written.lastSeq).toBe(2)
    expect(copied.tables[0]).toMatchObject({ table: "entries", rows: 2 })
    const db = new Database(join(target, "kv.db"), { readonly: true })
    expect(db.prepare("SELECT key FROM entries ORDER BY key").pluck().all()).toEqual(["acknowledged", "before"])
    db.close()
  })

  live("are refused where a node had a lease before they had their locks", function* () {
    const url = yield* filled
    const target = join(yield* temporaryDirectory, "target")
    const message = yield* withClient(url, function* (run) {
      yield* run("BEGIN; SELECT FROM causeway.log FOR UPDATE")
      const copying = yield* Effect.fork(refusal(StoreCopy.copy({ from: database(url), to: files(target) })))
      yield* areWaiting(url, 1)
      yield* sql(url, `SELECT ${newLease}`)
      yield* run("COMMIT")
      return yield* Fiber.join(copying)
    })
    expect(message).toContain("is served by a node")
    expect(existsSync(target)).toBe(false)
  })

  live("are made both ways, whatever time limits the role has and however late their statements arrive", function* () {
    const url = yield* newDatabase
    // Brings the schema up to date.
    yield* Effect.scoped(node(url))
    yield* Effect.promise(() => limitRole(url))
    const proxy = yield* Proxy.make(url)
    proxy.set("late requests")
    yield* StoreCopy.copy({ from: files(yield* filledDirectory), to: database(proxy.url) })
    expect(yield* keysIn(unlimited(url))).toEqual(["carried"])
    const back = yield* temporaryDirectory
    const copied = yield* StoreCopy.copy({ from: database(proxy.url), to: files(back) })
    expect(copied.tables[0]).toMatchObject({ table: "entries", rows: 1 })
  })

  /** Calls a function as soon as the mark of a copy is committed, before the copy has its locks. */
  const onMark = (url: string, call: string) =>
    sql(
      url,
      `CREATE FUNCTION public.on_mark() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN PERFORM ${call}; RETURN NULL; END $$`,
      `CREATE CONSTRAINT TRIGGER on_mark AFTER INSERT ON causeway.migrations DEFERRABLE INITIALLY DEFERRED
         FOR EACH ROW EXECUTE FUNCTION public.on_mark()`
    )

  const written = `causeway.commit_group(
    gen_random_uuid(), 1, true, '{n}', '{acknowledged}', '{1}', '{tester}', '{1}', '{1}', '{null}', '{null}', '{null}')`

  for (const [what, call, message, keys] of [
    ["write to the target", written, "is not empty", ["acknowledged"]],
    ["have a lease there", newLease, "is served by a node", []]
  ] as const) {
    live(`are refused where a node came to ${what} before they had their locks`, function* () {
      const source = yield* filledDirectory
      const url = yield* newDatabase
      yield* Opened.open(url)
      yield* onMark(url, call)
      expect(yield* refusal(StoreCopy.copy({ from: files(source), to: database(url) }))).toContain(message)
      // Nothing of it is left, and the node may continue.
      expect(yield* keysIn(url)).toEqual(keys)
      yield* Opened.open(url)
    })
  }

  live("remove their mark where a node has written to the target after a copy that was not finished", function* () {
    const source = yield* filledDirectory
    const url = yield* newDatabase
    const late = yield* node(url)
    const copying = StoreCopy.copy({ from: files(source), to: database(url), report: () => Effect.interrupt })
    yield* Effect.exit(copying)
    // It was open before the mark was made.
    yield* put(late, "acknowledged", 1)
    const again = StoreCopy.copy({ from: files(source), to: database(url) })
    expect(yield* refusal(again)).toContain("is not empty")
    expect(yield* keysIn(url)).toEqual(["acknowledged"])
    yield* Opened.open(url)
  })

  live("keep their locks while the other store works, and lose them when their process hangs", function* () {
    const idle = { limit: 3000, pause: 200 }
    const [url, empty] = [yield* filled, yield* newDatabase]
    const opened: ReadonlyArray<
      readonly [string, (url: Redacted.Redacted) => Effect.Effect<unknown, unknown, Scope.Scope>]
    > = [
      [url, address => PostgresCopy.openSource(address, idle)],
      [empty, address => PostgresCopy.openTarget(address, "source", idle)]
    ]
    for (const [address, open] of opened) {
      const proxy = yield* Proxy.make(address)
      yield* open(Redacted.make(proxy.url))
      /** Seconds since the transaction of the copy began, if it is open. */
      const age = Effect.map(
        sql(
          address,
          `SELECT extract(epoch FROM clock_timestamp() - xact_start)::int AS age FROM pg_stat_activity
             WHERE datname = current_database() AND application_name = 'causeway migrate-store'`
        ),
        rows => rows.map(({ age }) => Number(age))
      )
      const [old = 0] = yield* Effect.repeat(Effect.delay(age, "100 millis"), { until: ([age = 9]) => age >= 5 })
      expect(old).toBeGreaterThanOrEqual(5)
      proxy.set("black hole")
      yield* Effect.repeat(Effect.delay(age, "100 millis"), { until: ages => ages.length === 0 })
    }
    yield* Opened.open(url)
  })

  live("let this process do other work while they are verified", function* () {
    const turns: Array<boolean> = []
    let hasTurned = true
    yield* StoreCopy.copy({
      from: database(yield* filled),
      to: files(yield* temporaryDirectory),
      report: ({ phase }) =>
        Effect.sync(() => {
          if (phase === "copy") return
          turns.push(hasTurned)
          hasTurned = false
          setImmediate(() => {
            hasTurned = true
          })
        })
    })
    expect(turns.length).toBeGreaterThan(1)
    expect(turns).not.toContain(false)
  })

  live("prevent a node from opening either store, with the reason", function* () {
    const [url, empty] = [yield* filled, yield* newDatabase]
    const [source, target] = [yield* filledDirectory, yield* temporaryDirectory]
    const reasons: Array<string> = []
    const open = (url: string) =>
      Effect.map(Effect.flip(Opening.open(Redacted.make(url))), ({ message }) => {
        reasons.push(message)
      })
    yield* StoreCopy.copy({ from: database(url), to: files(target), report: during(open(url)) })
    yield* StoreCopy.copy({ from: files(source), to: database(empty), report: during(open(empty)) })
    expect(reasons).toEqual([
      expect.stringMatching(/^causeway\.log is used by process \d+ \(causeway migrate-store\)/),
      expect.stringContaining("that was not finished: run causeway migrate-store again")
    ])
    // Another copy is kept from it, too, and either store can be opened afterwards.
    for (const each of [url, empty]) yield* Opened.open(each)
  })
})
