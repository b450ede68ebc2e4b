/** How a node of a new version brings the schema up to date while other nodes serve and other sessions read. */
import { expect } from "@effect/vitest"
import { Context, Effect, Exit, Fiber, Layer, Redacted } from "effect"
import pg from "pg"
import { ChangeLog } from "../../../src/Kv/ChangeLog.ts"
import { Store } from "../../../src/Kv/Store.ts"
import * as Client from "../../../src/Storage/Postgres/Database/Client.ts"
import * as TableLocks from "../../../src/Storage/Postgres/Database/TableLocks.ts"
import * as Opening from "../../../src/Storage/Postgres/Opening.ts"
import * as Postgres from "../../../src/Storage/Postgres.ts"
import { newDatabase, newStore, optionsOf, sql, withClient } from "../../postgres/Databases.ts"
import { live, onPostgres } from "../../postgres/Live.ts"
import * as Proxy from "../../postgres/Proxy.ts"
import { isUnavailable, later, laterSteps, logged, node, put, ready } from "./Fixture.ts"

const versionOf = (url: string) =>
  Effect.map(sql(url, "SELECT max(version) AS version FROM causeway.migrations"), ([row]) => row?.version)

/** How the server names modes. */
const modes = {
  SHARE: "ShareLock",
  "SHARE ROW EXCLUSIVE": "ShareRowExclusiveLock",
  EXCLUSIVE: "ExclusiveLock",
  "ACCESS EXCLUSIVE": "AccessExclusiveLock"
} as const

/** Statements on a connection of their own. */
const connection = (url: string) =>
  Effect.map(
    Effect.acquireRelease(
      Effect.promise(async () => {
        const client = new pg.Client(Client.clientConfig(Redacted.make(url)))
        await client.connect()
        return client
      }),
      client => Effect.promise(() => client.end())
    ),
    (client): Client.Query =>
      (text, values, limit) =>
        Client.queryOn(client, text, values, limit)
  )

/** Until a session waits for a table as a whole, in one of the modes. */
const isQueued = (url: string, ...waiting: ReadonlyArray<string>) =>
  Effect.repeat(
    Effect.delay(
      sql(
        url,
        `SELECT count(*)::int AS waiting FROM pg_locks
         WHERE NOT granted AND mode IN (${waiting.map(mode => `'${mode}'`).join(", ")})
           AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
      ),
      "5 millis"
    ),
    { until: ([row]) => row?.waiting === 1 }
  )

/** What nodes do all the time, each on a connection of its own that waits as long for a lock as theirs. */
const work = [
  "SELECT FROM causeway.log FOR UPDATE",
  "SELECT causeway.epoch()",
  "SELECT causeway.renew_lease('11111111-1111-4111-8111-111111111111', 10000, true)",
  "SELECT address FROM causeway.nodes",
  "SELECT epoch, head FROM causeway.histories WHERE session = 's'",
  "SELECT count(*) FROM causeway.entries"
]

const workOn = (url: string, lockTimeout: number) =>
  Effect.forEach(work, text => sql(url, `SET lock_timeout = ${lockTimeout}`, text), {
    concurrency: "unbounded",
    discard: true
  })

/** As the service reads a list without a limit. */
const list = [
  "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
  "SELECT count(*), causeway.epoch() FROM causeway.entries"
]

/** As pg_dump does. */
const dump = [
  "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
  `DO $$ BEGIN
    EXECUTE (
      SELECT 'LOCK TABLE ' || string_agg('causeway.' || quote_ident(tablename), ', ') || ' IN ACCESS SHARE MODE'
      FROM pg_tables WHERE schemaname = 'causeway'
    );
  END $$`
]

/** Uses a database while another session is in a transaction. */
const during = <A, E, R>(
  url: string,
  statements: ReadonlyArray<string>,
  use: (end: Effect.Effect<void>) => Effect.Effect<A, E, R>
) =>
  withClient(url, function* (run) {
    yield* run("SET application_name = 'reader'")
    for (const text of statements) yield* run(text)
    return yield* use(run("COMMIT"))
  })

const store = newStore

/**
 * A database whose next migration waits until another session ends. Returns the process that waits for that, and the
 * process of the last attempt.
 */
const withSlowMigration = Effect.gen(function* () {
  const url = yield* store
  yield* sql(
    url,
    "CREATE SEQUENCE public.attempts",
    `CREATE FUNCTION public.wait() RETURNS event_trigger LANGUAGE plpgsql SET lock_timeout = 0 AS $$ BEGIN
       PERFORM setval('public.attempts', pg_backend_pid());
       PERFORM pg_advisory_xact_lock(77);
     END $$`,
    "CREATE EVENT TRIGGER slow ON ddl_command_start EXECUTE FUNCTION public.wait()"
  )
  const waiting = Effect.map(
    sql(url, "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = 77 AND NOT granted"),
    rows => rows.map(({ pid }) => Number(pid))
  )
  const lastAttempt = Effect.map(sql(url, "SELECT last_value::int AS pid FROM public.attempts"), ([row]) => row?.pid)
  return { url, waiting, lastAttempt }
})

onPostgres("Postgres, upgrading", () => {
  live("a migration that takes longer than a node waits for it at the start is done once, and logged", function* () {
    const { lastAttempt, url, waiting } = yield* withSlowMigration
    const { layer, lines } = logged()
    const started = yield* withClient(url, function* (other) {
      yield* other("SELECT pg_advisory_lock(77)")
      const context = yield* Effect.provide(later(Layer.build(Postgres.layer(optionsOf(url)))), layer)
      const node = { store: Context.get(context, Store), log: Context.get(context, ChangeLog) }
      expect(yield* node.store.ready).toBe(false)
      expect(String(yield* Effect.flip(put(node, "k", 1)))).toContain("its schema is brought up to date, from version")
      const [first] = yield* waiting
      return { first, node }
    })
    yield* ready(started.node)
    expect(yield* lastAttempt).toBe(started.first)
    expect(lines.filter(line => line.includes("The schema of the database is brought up to date"))).toHaveLength(1)
  })

  live("a migration whose node has ended does not keep its locks until its statement ends", function* () {
    const { url, waiting } = yield* withSlowMigration
    yield* withClient(url, function* (other) {
      yield* other("SELECT pg_advisory_lock(77)")
      const opening = yield* Effect.fork(later(Opening.open(Redacted.make(url))))
      yield* Effect.repeat(waiting, { until: pids => pids.length === 1 })
      yield* Fiber.interrupt(opening)
      yield* Effect.repeat(Effect.delay(waiting, "50 millis"), { until: pids => pids.length === 0 })
    })
  })

  live("a migration whose node was killed half-way leaves nothing, and the next node does all of it", function* () {
    for (const statement of ["LOCK TABLE causeway.entries IN SHARE", "INSERT INTO causeway.migrations", "identify()"]) {
      const url = yield* store
      const proxy = yield* Proxy.make(url)
      proxy.set("black hole", statement)
      const opening = yield* Effect.fork(Effect.exit(later(Opening.open(Redacted.make(proxy.url)))))
      yield* Effect.promise(() => proxy.affected)
      // As the server sees a node whose process is killed.
      yield* Effect.promise(() => proxy.cut(true))
      expect(Exit.isFailure(yield* Fiber.join(opening))).toBe(true)
      expect(yield* versionOf(url)).toBe(laterSteps.length - 1)
      yield* put(yield* later(node(url)), "k", 1)
      expect(yield* versionOf(url)).toBe(laterSteps.length)
    }
  })

  live("steps name the tables that they lock against reads, or against writes", function* () {
    const url = yield* newDatabase
    yield* sql(url, "CREATE SCHEMA causeway")
    for (const { locks = {}, name, statements } of laterSteps) {
      const [row] = yield* sql(
        url,
        "CREATE TABLE IF NOT EXISTS public.locked (mode_of jsonb)",
        "DELETE FROM public.locked",
        "BEGIN",
        `CREATE TEMPORARY TABLE known ON COMMIT DROP AS
             SELECT oid, relname FROM pg_class WHERE relnamespace = 'causeway'::regnamespace AND relkind = 'r'`,
        ...statements,
        // An exclusive lock before one that is shared, in the order of the alphabet.
        `INSERT INTO public.locked SELECT coalesce(jsonb_object_agg(f.relname, f.mode), '{}') FROM (
             SELECT k.relname, min(l.mode) AS mode FROM pg_locks l JOIN known k ON k.oid = l.relation
             WHERE l.pid = pg_backend_pid() AND l.mode NOT IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')
             GROUP BY k.relname
           ) f`,
        "COMMIT",
        "SELECT mode_of FROM public.locked"
      )
      const named = Object.entries(locks).map(([table, mode]) => [table, modes[mode]])
      expect({ name, locks: Object.fromEntries(named) }).toEqual({ name, locks: row?.mode_of })
    }
  })

  for (const [what, statements] of [
    ["a list that is read", list],
    ["a dump", dump]
  ] as const) {
    live(`a node does not start during ${what}, and the others continue`, function* () {
      const url = yield* store
      yield* during(url, statements, end =>
        Effect.gen(function* () {
          const opening = yield* Effect.fork(Effect.flip(later(Opening.open(Redacted.make(url)))))
          yield* isQueued(url, modes["ACCESS EXCLUSIVE"])
          yield* workOn(url, 1500)
          const { message } = yield* Fiber.join(opening)
          expect(message).toMatch(/^causeway\.\w+ is used by process \d+ \(reader\)/)
          // No session waits behind it any longer.
          yield* workOn(url, 1)
          expect(yield* versionOf(url)).toBe(laterSteps.length - 1)
          yield* end
        })
      )
      yield* later(Opening.open(Redacted.make(url)))
      expect(yield* versionOf(url)).toBe(laterSteps.length)
    })
  }

  live("a node waits for writers with idempotency keys, and fails none of them", function* () {
    const url = yield* store
    yield* sql(url, "SELECT causeway.identify()")
    const remember = (id: string) =>
      `SELECT causeway.remember_writes(1, 1000, false, ARRAY['tenant:a'], ARRAY['${id}'], ARRAY['d'], ARRAY['0'])`
    const opening = yield* withClient(url, function* (run) {
      // The order in which the function of a write uses the tables.
      for (const text of [
        "SET lock_timeout = 100",
        "BEGIN",
        "SELECT FROM causeway.log FOR UPDATE",
        "UPDATE causeway.commits SET result = result"
      ])
        yield* run(text)
      const opening = yield* Effect.fork(
        later(Effect.retry(Opening.open(Redacted.make(url)), { while: ({ _tag }) => _tag === "TablesInUse" }))
      )
      yield* isQueued(url, modes.SHARE, modes.EXCLUSIVE, modes["ACCESS EXCLUSIVE"])
      yield* run(remember("k"))
      yield* run("COMMIT")
      return opening
    })
    yield* Fiber.join(opening)
    expect(yield* versionOf(url)).toBe(laterSteps.length)
    yield* sql(url, remember("l"))
  })

  live("a node that starts during a dump is not ready until that ends", function* () {
    const url = yield* store
    const started = yield* during(url, dump, end =>
      Effect.gen(function* () {
        const started = yield* later(node(url))
        expect(yield* started.store.ready).toBe(false)
        const written = yield* Effect.either(put(started, "k", 1))
        expect(isUnavailable(written)).toBe(true)
        expect(String(written)).toContain("(reader)")
        yield* end
        return started
      })
    )
    yield* ready(started)
    expect(yield* put(started, "k", 1)).toMatchObject({ lastSeq: 1 })
  })

  live("locks that keep off writers do not wait for a dump", function* () {
    const url = yield* store
    const lock = (mode: TableLocks.Mode) =>
      Effect.scoped(
        Effect.flatMap(connection(url), query =>
          Effect.zipRight(query("BEGIN"), TableLocks.lock(query, [["entries", mode]], 50))
        )
      )
    yield* during(url, dump, () =>
      Effect.gen(function* () {
        yield* lock("SHARE ROW EXCLUSIVE")
        expect(yield* Effect.flip(lock("ACCESS EXCLUSIVE"))).toMatchObject({ _tag: "TablesInUse" })
      })
    )
  })
})
