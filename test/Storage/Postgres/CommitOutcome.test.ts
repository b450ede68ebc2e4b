/** Commits whose answer does not come. */
import { expect } from "@effect/vitest"
import { Effect } from "effect"
import { newStore, sql, withOwnClock } from "../../postgres/Databases.ts"
import { live, onPostgres } from "../../postgres/Live.ts"
import * as Opened from "../../postgres/Opened.ts"
import * as Proxy from "../../postgres/Proxy.ts"
import { behindProxy, isUnavailable, node, put, ready, records } from "./Fixture.ts"

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
