/** What a node does while its database is unavailable or slow. */

import { randomBytes } from "node:crypto"
import { expect, it } from "@effect/vitest"
import { Context, Effect, Either, Fiber, Layer, Metric, MetricState, Option, type Scope } from "effect"
import * as MetricTags from "../../../src/base/Observability/MetricTags.ts"
import * as Change from "../../../src/Kv/Change.ts"
import { ChangeLog } from "../../../src/Kv/ChangeLog.ts"
import { Store, StoreUnavailable } from "../../../src/Kv/Store.ts"
import { createDatabase, newStore, optionsOf, server, sql, withClient, withOwnClock } from "../../postgres/Databases.ts"
import * as Disk from "../../postgres/Disk.ts"
import { live, onPostgres, quiet, together } from "../../postgres/Live.ts"
import * as Opened from "../../postgres/Opened.ts"
import { persist } from "../../postgres/Opened.ts"
import * as Proxy from "../../postgres/Proxy.ts"
import { onlyLong } from "../../Scale.ts"
import { del, set } from "../../suites/Store/Fixture.ts"
import { behindProxy, isUnavailable, namespace, node, put, ready, records, someoneWaits } from "./Fixture.ts"

onPostgres("Postgres, failures", () => {
  live("acknowledged writes survive a database that is stopped at once, and the node continues", function* () {
    const database = yield* server({})
    const url = yield* Effect.promise(() => createDatabase(database))
    const started = yield* node(url)
    const acknowledged: Array<string> = []
    let isOver = false
    const writing = yield* Effect.fork(
      together(["a", "b", "c", "d"], writer =>
        Effect.gen(function* () {
          for (let n = 0; !isOver; n++) {
            const outcome = yield* Effect.either(put(started, `${writer}${n}`, n))
            if (Either.isRight(outcome)) acknowledged.push(`${writer}${n}`)
            else {
              expect(outcome.left).toBeInstanceOf(StoreUnavailable)
              // Writers that fail at once, again and again, would leave the event loop no time for a new connection.
              yield* Opened.pause
            }
          }
        })
      )
    )
    for (let round = 0; round < 2; round++) {
      const before = acknowledged.length
      yield* Effect.repeat(Opened.pause, { until: () => acknowledged.length > before + 20 })
      yield* Effect.promise(() => database.stop("immediate"))
      yield* Effect.promise(() => database.start())
      yield* ready(started)
    }
    isOver = true
    yield* writing.await
    const keys = new Set<string>()
    const seqs: Array<number> = []
    for (let after = 0, last = yield* started.log.lastSeq; after < last; ) {
      const page = yield* started.log.read({ after, limit: 1000, tenant: "" })
      for (const change of page.changes.map(Change.decode)) {
        keys.add(change.key)
        seqs.push(change.seq)
      }
      after = page.lastSeq
    }
    expect(seqs).toEqual(seqs.map((_, index) => index + 1))
    expect(acknowledged.filter(key => !keys.has(key))).toEqual([])
  })

  live("all is unavailable while connections lead into a black hole, and later requests use new ones", function* () {
    const { proxy, started } = yield* behindProxy
    yield* put(started, "k", 1)
    const requests: ReadonlyArray<Effect.Effect<unknown, unknown, Scope.Scope>> = [
      started.store.get(namespace, "k"),
      started.store.list({ namespace, prefix: "", after: "", limit: 10 }),
      started.store.listAll({ namespace, prefix: "" }),
      records(started),
      started.log.history
    ]
    yield* Effect.all(requests, { concurrency: "unbounded" })
    proxy.set("black hole")
    const outcomes = yield* Effect.all([...requests, put(started, "k", 2)].map(Effect.either), {
      concurrency: "unbounded"
    })
    expect(outcomes.filter(outcome => !isUnavailable(outcome))).toEqual([])
    proxy.set("open")
    yield* Effect.all(
      requests.map(request => persist(request)),
      { concurrency: "unbounded" }
    )
  })

  live(
    "reads and writes that wait too long for a lock are unavailable, however few connections there are",
    function* () {
      const url = yield* newStore
      const started = yield* node({ ...optionsOf(url), connections: 1 })
      yield* put(started, "k", 1)
      yield* withClient(url, function* (other) {
        yield* other("BEGIN")
        yield* other("LOCK TABLE causeway.entries IN ACCESS EXCLUSIVE MODE")
        const reads = Array.from({ length: 10 }, () => Effect.asVoid(started.store.get(namespace, "k")))
        const outcomes = yield* Effect.all([...reads, Effect.asVoid(put(started, "k", 2))].map(Effect.either), {
          concurrency: "unbounded"
        })
        expect(outcomes.every(isUnavailable)).toBe(true)
        yield* other("ROLLBACK")
      })
      yield* ready(started)
      expect(Option.isSome(yield* started.store.get(namespace, "k"))).toBe(true)
    }
  )

  onlyLong(live)("a batch of the largest size has more time than others, with the server too", function* () {
    const url = yield* newStore
    const started = yield* node(url)
    // Records are added late; what the server gives them is kept.
    yield* sql(
      url,
      "CREATE TABLE limits (statement text, lock text)",
      `CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO limits VALUES (current_setting('statement_timeout'), current_setting('lock_timeout'));
             PERFORM pg_sleep(3.2);
             RETURN NULL;
           END $$`,
      "CREATE TRIGGER late AFTER INSERT ON causeway.changes FOR EACH STATEMENT EXECUTE FUNCTION late()"
    )
    const text = "x".repeat(1024 * 1024 - 100)
    const large = started.store.commit({
      operations: Array.from({ length: 16 }, (_, index) => set(namespace, `k${index}`, text)),
      actor: "tester"
    })
    expect((yield* large).lastSeq).toBe(16)
    expect(isUnavailable(yield* Effect.either(put(started, "small", 1)))).toBe(true)
    yield* Effect.repeat(Effect.delay(started.store.ready, "10 millis"), { until: isReady => isReady })
    const limits = yield* sql(url, "SELECT * FROM limits")
    expect(limits).toEqual([
      { statement: "19999ms", lock: "1500ms" },
      { statement: "5s", lock: "1500ms" }
    ])
  })

  it.scopedLive.skipIf(Disk.reasonToSkip !== undefined)(
    `writes are refused while the disk is full, reads continue, and so do writes when there is room ${Disk.reasonToSkip ?? ""}`,
    () =>
      Effect.gen(function* () {
        const disk = yield* Disk.make(24)
        const url = yield* Disk.createDatabase(disk)
        const started = yield* node(url)
        // A connection that does not find the database's own cache of its catalog writes it, and fails where it cannot.
        // One that is made while tables are being made does not keep what it has written.
        const isCached = sql(
          url,
          `SELECT (pg_stat_file(regexp_replace(pg_relation_filepath('pg_class'), '[^/]*$', 'pg_internal.init'), true)).size
               IS NOT NULL AS found`
        )
        yield* Effect.repeat(isCached, { until: ([row]) => row?.found === true })
        const text = randomBytes(600_000).toString("base64")
        const stored: Array<string> = []
        const fill = Effect.suspend(() => {
          const key = `k${stored.length}`
          return Effect.map(put(started, key, text), () => stored.push(key))
        })
        const refused = yield* Effect.either(Effect.forever(fill))
        expect(isUnavailable(refused)).toBe(true)
        expect(stored.length).toBeGreaterThan(0)
        for (const key of stored) expect(Option.isSome(yield* started.store.get(namespace, key))).toBe(true)
        expect(Option.isNone(yield* started.store.get(namespace, `k${stored.length}`))).toBe(true)
        disk.resize(64)
        yield* put(started, "last", text)
        // The refused one has no number.
        expect(yield* started.log.lastSeq).toBe(stored.length + 1)
      }).pipe(Effect.provide(quiet))
  )
})

const tag = "lock-wait-test"

/** How many groups have waited, and their milliseconds in all. */
const waitsOf = (tag: string) =>
  Effect.map(Metric.snapshot, pairs => {
    const pair = pairs.find(
      ({ metricKey }) =>
        metricKey.name === "postgres_log_lock_wait_ms" && metricKey.tags.some(({ value }) => value === tag)
    )
    const state = pair?.metricState
    return state !== undefined && MetricState.isHistogramState(state)
      ? { count: state.count, sum: state.sum }
      : undefined
  })

const waits = waitsOf(tag)

onPostgres("Postgres, waits for the log", () => {
  /** What another connection keeps waiting for the lock for a tenth of a second. */
  const kept = <A, E, R>(url: string, effect: Effect.Effect<A, E, R>) =>
    withClient(url, function* (other) {
      yield* other("BEGIN")
      yield* other("SELECT FROM causeway.log FOR UPDATE")
      const waiting = yield* Effect.fork(effect)
      yield* someoneWaits(url)
      yield* other("SELECT pg_sleep(0.1)")
      yield* other("COMMIT")
      return yield* Fiber.join(waiting)
    })

  live("are measured by the database, of groups that take the lock", function* () {
    const url = yield* newStore
    const context = yield* Layer.build(MetricTags.tagged({ test_store: tag })(Opened.layer(optionsOf(url))))
    const node = { store: Context.get(context, Store), log: Context.get(context, ChangeLog) }
    expect(yield* waits).toEqual({ count: 0, sum: 0 })
    yield* kept(url, put(node, "k", 1))
    const waited = yield* waits
    expect(waited?.count).toBe(1)
    expect(waited?.sum).toBeGreaterThanOrEqual(100)
    // A delete of an absent key changes nothing, and waits for no other node.
    yield* node.store.commit({ operations: [del(namespace, "absent")], actor: "tester" })
    expect((yield* waits)?.count).toBe(1)
    yield* put(node, "k", 2)
    expect((yield* waits)?.count).toBe(2)
  })

  live("are measured of writes with idempotency keys, also of one that changes nothing", function* () {
    const url = yield* newStore
    const context = yield* Layer.build(MetricTags.tagged({ test_store: `${tag}-keyed` })(Opened.layer(optionsOf(url))))
    const { commit } = Context.get(context, Store)
    const keyed = (id: string, operation: ReturnType<typeof set> | ReturnType<typeof del>) =>
      commit({ operations: [operation], actor: "tester", idempotencyKey: { tenant: "t", id, digest: "digest" } })
    yield* kept(url, keyed("first", set(namespace, "k", 1)))
    const changed = yield* waitsOf(`${tag}-keyed`)
    expect(changed?.count).toBe(1)
    expect(changed?.sum).toBeGreaterThanOrEqual(100)
    // It is remembered, so that it waits.
    yield* kept(url, keyed("second", del(namespace, "absent")))
    const unchanged = yield* waitsOf(`${tag}-keyed`)
    expect(unchanged?.count).toBe(2)
    expect(unchanged?.sum).toBeGreaterThanOrEqual(200)
  })

  live("are measured of a group that takes the lock first, having lost a race", function* () {
    const url = yield* newStore
    yield* Layer.build(Opened.layer(optionsOf(url)))
    const parameters = "'{n}', '{k}', '{1}', '{tester}', '{1}', '{1}', ARRAY[NULL]::bigint[], NULL, NULL"
    for (const call of [
      `commit_group(gen_random_uuid(), 1, true, ${parameters})`,
      `commit_keyed(gen_random_uuid(), 1, true, ${parameters}, 1000000, '{1}', '{id}', '{digest}', '{""}', '{t}', false)`
    ]) {
      const [row] = yield* kept(url, sql(url, `SELECT causeway.${call} AS answer`))
      expect(Number(String(row?.answer).split(",").at(-1))).toBeGreaterThanOrEqual(100_000)
    }
  })
})

onPostgres("Postgres, the outcome of a commit", () => {
  for (const [mode, what] of [
    ["answers lost", "whose answer is lost is found out about, and not repeated"],
    ["requests lost", "that has never arrived is repeated"]
  ] as const) {
    live(`a commit ${what}`, function* () {
      const { proxy, started } = yield* behindProxy
      yield* put(started, "k", 1)
      proxy.set(mode, "commit_group")
      void proxy.affected.then(() => proxy.set("open"))
      const outcome = yield* put(started, "k", 2)
      yield* Effect.promise(() => proxy.affected)
      expect(outcome).toMatchObject({ results: [{ op: "set", version: 2 }], lastSeq: 2 })
      expect((yield* records(started)).map(({ version }) => version)).toEqual([1, 2])
    })
  }

  live("a commit that has never arrived is not repeated after its caller was answered that it failed", function* () {
    const url = yield* newStore
    const proxy = yield* Proxy.make(url)
    const [near, other] = [yield* node(proxy.url), yield* node(url)]
    yield* put(near, "k", "first")
    proxy.set("black hole", "commit_group")
    expect(isUnavailable(yield* Effect.either(put(near, "k", "stale")))).toBe(true)
    yield* put(other, "k", "newer")
    proxy.set("open")
    // Now the node learns that its connection is lost, and reads the outcome of the commit.
    yield* Effect.promise(() => proxy.cut(false))
    yield* ready(near)
    expect((yield* records(other)).map(({ version }) => version)).toEqual([1, 2])
    expect(yield* put(near, "k", "last")).toMatchObject({ lastSeq: 3 })
  })

  live(
    "a commit that is so old that its mark may be gone is not repeated, and no later one is kept back",
    function* () {
      const url = yield* newStore
      yield* Effect.promise(() => withOwnClock(url))
      const proxy = yield* Proxy.make(url)
      const started = yield* node(proxy.url)
      yield* put(started, "k", 1)
      // The node stops before it reads the outcome. After a minute, the commit record was removed.
      yield* sql(
        url,
        `CREATE FUNCTION own.pass() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             UPDATE own.clock SET ahead = 61000;
             DELETE FROM causeway.commits;
             RETURN NEW;
           END $$`,
        `CREATE TRIGGER pass BEFORE INSERT ON causeway.commits FOR EACH ROW WHEN (NEW.result IS NULL)
             EXECUTE FUNCTION own.pass()`
      )
      proxy.set("answers lost", "commit_group")
      void proxy.affected.then(() => proxy.set("open"))
      expect(yield* Effect.flip(put(started, "k", 2))).toMatchObject({
        _tag: "StoreUnavailable",
        reason: expect.stringMatching("the outcome of a commit is unknown")
      })
      expect(yield* put(started, "k", 3)).toMatchObject({ results: [{ op: "set", version: 3 }], lastSeq: 3 })
      expect((yield* records(started)).map(({ value }) => value)).toEqual(["1", "2", "3"])
    }
  )

  live("a commit whose outcome cannot be asked for is reported as unavailable, and later ones succeed", function* () {
    const { proxy, started } = yield* behindProxy
    yield* put(started, "k", 1)
    proxy.set("answers lost")
    expect(isUnavailable(yield* Effect.either(put(started, "k", 2)))).toBe(true)
    proxy.set("open")
    yield* ready(started)
    const { lastSeq } = yield* Opened.persist(put(started, "k", 3))
    expect((yield* records(started)).map(({ seq }) => seq)).toEqual(Array.from({ length: lastSeq }, (_, at) => at + 1))
  })
})
