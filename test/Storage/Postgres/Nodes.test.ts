/** Several nodes over one database. */
import { expect } from "@effect/vitest"
import { Duration, Effect, Either, Fiber, Option } from "effect"
import * as Change from "../../../src/Kv/Change.ts"
import type { Operation } from "../../../src/Kv/Write.ts"
import { migrations } from "../../../src/Storage/Postgres/Schema.ts"
import { stock } from "../../Harness.ts"
import { newDatabase, newStore, optionsOf, sql, withClient, withOwnClock } from "../../postgres/Databases.ts"
import { live, onPostgres, together } from "../../postgres/Live.ts"
import * as Opened from "../../postgres/Opened.ts"
import * as Http from "../../suites/Http/Fixture.ts"
import { del, set } from "../../suites/Store/Fixture.ts"
import type * as Fixture from "./Fixture.ts"
import { namespace, node, someoneWaits } from "./Fixture.ts"
import * as Held from "./Held.ts"

const commit = ({ store }: Fixture.Node, ...operations: ReadonlyArray<Operation>) =>
  store.commit({ operations, actor: "tester" })

/** All records up to `end`, as a follower receives them. */
const follow = ({ log }: Fixture.Node, end: number) =>
  Effect.gen(function* () {
    const seen: Array<Change.StoredChange> = []
    for (let at = 0; at < end; ) {
      const page = yield* log.read({ after: at, limit: 100, tenant: "" })
      seen.push(...page.changes.map(Change.decode))
      if (page.lastSeq === at) yield* log.awaitPast(at)
      at = page.lastSeq
    }
    return seen
  })

const versionAt = (operation: { readonly op: string; readonly version?: number } | undefined): number =>
  operation?.op === "set" ? (operation.version ?? 0) : 0

onPostgres("Postgres, several nodes", () => {
  live("nodes that start together migrate once", function* () {
    const url = yield* newDatabase
    const nodes = yield* Effect.all([node(url), node(url), node(url)], { concurrency: "unbounded" })
    for (const each of nodes) yield* commit(each, set(namespace, "k", 1))
    const rows = yield* sql(url, "SELECT version FROM causeway.migrations")
    expect(rows).toHaveLength(migrations.length)
  })

  live(
    "writers of three nodes make one chain of versions, and every follower sees each seq once and in order",
    function* () {
      const url = yield* newStore
      const nodes = [yield* node(url), yield* node(url), yield* node(url)]
      const writes = 60
      const followers = yield* Effect.forEach(nodes, each => Effect.fork(follow(each, 3 * writes * 2)))
      const committed = yield* together(nodes, (each, index) =>
        Effect.forEach(
          Array.from({ length: writes }),
          (_, n) => commit(each, set(namespace, `k${n % 5}`, n), set(namespace, `own${index}`, n)),
          { concurrency: 20 }
        )
      )
      const feeds = yield* Effect.forEach(followers, Fiber.join)
      for (const feed of feeds) {
        expect(feed.map(({ seq }) => seq)).toEqual(Array.from({ length: 3 * writes * 2 }, (_, index) => index + 1))
        expect(feed).toEqual(feeds[0])
      }
      for (const key of ["k0", "k1", "k2", "k3", "k4"]) {
        const versions = feeds[0]!.filter(change => change.key === key).map(({ version }) => version)
        expect(versions).toEqual(versions.map((_, index) => index + 1))
      }
      // A batch has consecutive records, and the answer to a writer agrees with the log.
      for (const { lastSeq, results } of committed.flat()) {
        const [first, second] = results
        expect(feeds[0]!.slice(lastSeq - 2, lastSeq).map(({ version }) => version)).toEqual([
          versionAt(first),
          versionAt(second)
        ])
      }
    }
  )

  live("a counter that nodes increase by its version loses no increase", function* () {
    const url = yield* newStore
    const nodes = [yield* node(url), yield* node(url)]
    yield* commit(nodes[0]!, set(namespace, "counter", 0))
    const increase = (each: Fixture.Node): Effect.Effect<void, unknown> =>
      Effect.gen(function* () {
        const { value, version } = Option.getOrThrow(yield* each.store.get(namespace, "counter"))
        const next = set(namespace, "counter", Number(value) + 1, { precondition: { match: [version] } })
        yield* Effect.catchTag(Effect.asVoid(commit(each, next)), "PreconditionFailed", () => increase(each))
      })
    yield* together(
      nodes.flatMap(each => Array.from({ length: 20 }, () => each)),
      increase
    )
    expect(Option.getOrThrow(yield* nodes[1]!.store.get(namespace, "counter"))).toMatchObject({
      value: "40",
      version: 41
    })
  })

  /** Lets another writer change things between what the function reads and its lock. */
  const overtaken = (between: string, ...operations: ReadonlyArray<Operation>) =>
    Effect.gen(function* () {
      const url = yield* newStore
      const one = yield* node(url)
      yield* commit(one, set(namespace, "there", 1), set(namespace, "deleted", 1))
      yield* commit(one, del(namespace, "deleted"))
      const outcome = yield* withClient(url, function* (other) {
        yield* other("BEGIN")
        yield* other("SELECT FROM causeway.log FOR UPDATE")
        const writing = yield* Effect.fork(Effect.either(commit(one, ...operations)))
        yield* someoneWaits(url)
        yield* other(between)
        yield* other("COMMIT")
        return yield* Fiber.join(writing)
      })
      return { outcome, one, feed: yield* follow(one, yield* one.log.lastSeq) }
    })

  const change = `INSERT INTO causeway.changes (seq, op, namespace, key, version, actor, timestamp, value)`

  live("a write that another node has overtaken is decided again", function* () {
    const { feed, outcome } = yield* overtaken(
      `UPDATE causeway.entries SET version = 2, value = '"other"' WHERE key = 'there';
         ${change} VALUES (4, 'set', '${namespace}', 'there', 2, 'other', 1, '"other"')`,
      set(namespace, "there", "mine")
    )
    expect(outcome).toMatchObject({ right: { results: [{ op: "set", version: 3 }], lastSeq: 5 } })
    expect(feed.map(({ seq, key, version }) => `${seq} ${key} ${version}`)).toEqual([
      "1 there 1",
      "2 deleted 1",
      "3 deleted 2",
      "4 there 2",
      "5 there 3"
    ])
  })

  live("a group that takes the lock of the log first is decided by what was committed before", function* () {
    const url = yield* newStore
    const [one, two] = [yield* Held.connect(url), yield* Held.connect(url)]
    const write = (client: typeof one, value: number, lockFirst: boolean) =>
      Effect.promise(() =>
        Held.call(client, "commit_group", Held.groupOf([set(namespace, "k", value)], 1000, lockFirst))
      )
    yield* write(one, 1, false)
    yield* Effect.promise(() => one.query("BEGIN"))
    yield* write(one, 2, false)
    const waiting = yield* Effect.fork(write(two, 3, true))
    yield* someoneWaits(url)
    yield* Effect.promise(() => one.query("COMMIT"))
    yield* Fiber.join(waiting)
    expect(yield* sql(url, "SELECT version::int, value FROM causeway.entries")).toEqual([{ version: 3, value: "3" }])
  })

  live("a batch is refused whose condition on an absent key another node has broken", function* () {
    const { feed, outcome } = yield* overtaken(
      `INSERT INTO causeway.entries (namespace, key, version, updated_by, updated_at, value)
           VALUES ('${namespace}', 'absent', 1, 'other', 1, '1');
         ${change} VALUES (4, 'set', '${namespace}', 'absent', 1, 'other', 1, '1')`,
      del(namespace, "absent", { noneMatch: "any" }),
      set(namespace, "there", "mine")
    )
    expect(outcome).toMatchObject({ left: { _tag: "PreconditionFailed", index: 0, currentVersion: 1 } })
    expect(feed).toHaveLength(4)
  })

  live("a key that another node has created or set again gets the next version", function* () {
    const { outcome } = yield* overtaken(
      `INSERT INTO causeway.entries (namespace, key, version, updated_by, updated_at, value)
           VALUES ('${namespace}', 'new', 1, 'other', 1, '1'), ('${namespace}', 'deleted', 3, 'other', 1, '1');
         DELETE FROM causeway.tombstones;
         ${change} VALUES (4, 'set', '${namespace}', 'new', 1, 'other', 1, '1'),
           (5, 'set', '${namespace}', 'deleted', 3, 'other', 1, '1')`,
      set(namespace, "new", "mine"),
      set(namespace, "deleted", "mine")
    )
    expect(outcome).toMatchObject({
      right: {
        results: [
          { op: "set", version: 2 },
          { op: "set", version: 4 }
        ],
        lastSeq: 7
      }
    })
  })

  live(
    "a write that is the victim of a deadlock, or of a serialization failure, is repeated a few times",
    function* () {
      const url = yield* newStore
      const one = yield* node(url)
      // The number of a sequence is not taken back with the transaction.
      const failing = (code: string, times: number) =>
        sql(
          url,
          `CREATE OR REPLACE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               IF nextval('failures') <= ${times} THEN RAISE EXCEPTION 'planted' USING ERRCODE = '${code}'; END IF;
               RETURN NEW;
             END $$`,
          "DROP SEQUENCE IF EXISTS failures",
          "CREATE SEQUENCE failures",
          "CREATE OR REPLACE TRIGGER fail BEFORE INSERT ON causeway.changes FOR EACH STATEMENT EXECUTE FUNCTION fail()"
        )
      yield* failing("40P01", 1)
      expect(yield* commit(one, set(namespace, "k", 1))).toMatchObject({ lastSeq: 1 })
      yield* failing("40001", 3)
      expect(yield* commit(one, set(namespace, "k", 2))).toMatchObject({ lastSeq: 2 })
      yield* failing("40P01", 4)
      expect(yield* Effect.flip(commit(one, set(namespace, "k", 3)))).toMatchObject({
        _tag: "StoreUnavailable",
        reason: "tried 4 times: planted (40P01)"
      })
      expect(yield* commit(one, set(namespace, "k", 4))).toMatchObject({
        results: [{ op: "set", version: 3 }],
        lastSeq: 3
      })
    }
  )

  live("a write that the database refuses fails alone", function* () {
    const url = yield* newStore
    const one = yield* node(url)
    yield* sql(url, "ALTER TABLE causeway.entries ADD CONSTRAINT no_bad CHECK (value <> '\"bad\"')")
    const outcomes = yield* together(["good", "bad", "good", "good"], (value, index) =>
      Effect.either(commit(one, set(namespace, `k${index}`, value)))
    )
    expect(outcomes.map(Either.isRight)).toEqual([true, false, true, true])
    expect((yield* follow(one, 3)).map(({ seq, value }) => [seq, value])).toEqual([
      [1, '"good"'],
      [2, '"good"'],
      [3, '"good"']
    ])
  })

  live("records that one node has trimmed are known to be removed on the others", function* () {
    const url = yield* newStore
    const [one, other] = [yield* node(url), yield* node(url)]
    for (let n = 0; n < 3; n++) yield* commit(one, set(namespace, "k", n))
    const before = yield* other.log.history
    // A record of this very millisecond is not old.
    const trimmed = yield* Effect.iterate(0, {
      while: total => total < 2,
      body: total => Effect.map(one.log.trim(Duration.zero), count => total + count)
    })
    expect(trimmed).toBe(2)
    expect(yield* other.log.history).not.toBe(before)
    expect(yield* Effect.flip(other.log.read({ after: 0, limit: 10, tenant: "" }))).toMatchObject({ trimmedSeq: 2 })
  })

  live("an entry lives for as long as its writer asked, however wrong the clock of the node is", function* () {
    const url = yield* newStore
    const setClock = yield* Effect.promise(() => withOwnClock(url))
    for (const ahead of [3_600_000, 7_200_000]) {
      yield* Effect.promise(() => setClock(ahead))
      yield* Effect.scoped(
        Effect.gen(function* () {
          const served = yield* Http.site(stock, Opened.layer(optionsOf(url)))
          const [written, found] = yield* Effect.provideService(
            Effect.all([
              Http.put("n", `k${ahead}`, 1, { json: { value: 1, ttlMs: 60_000 } }),
              Http.get("n", `k${ahead}`)
            ]),
            Http.Site,
            served
          )
          expect([written.status, found.status]).toEqual([200, 200])
          const { expiresAt, updatedAt } = Http.bodyOf<Http.EntryBody>(found)
          expect(Math.abs(Number(expiresAt) - updatedAt - 60_000)).toBeLessThan(30_000)
        })
      )
    }
  })
})
