/** Writes with idempotency keys on several nodes, and where answers are lost. */
import { expect } from "@effect/vitest"
import { Effect, Either, Fiber } from "effect"
import type { Operation, Write } from "../../../../src/Kv/Write.ts"
import { newStore, sql, withClient } from "../../../postgres/Databases.ts"
import { live, onPostgres, quiet, together } from "../../../postgres/Live.ts"
import { persist } from "../../../postgres/Opened.ts"
import * as Proxy from "../../../postgres/Proxy.ts"
import { del, set } from "../../../suites/Store/Fixture.ts"
import { isUnavailable, type Node, namespace, node, put, ready, records, someoneWaits } from "../Fixture.ts"

const commitAs = ({ store }: Node, id: string, given: Omit<Write, "actor">) =>
  store.commit({ ...given, actor: "tester", idempotencyKey: { tenant: "t", id, digest: "digest" } })

const writeAs = (on: Node, id: string, ...operations: ReadonlyArray<Operation>) => commitAs(on, id, { operations })

const deleteOne = { operations: [], prefixDelete: { namespace, prefix: "", limit: 1 } }

const versions = (on: Node) => Effect.map(records(on), all => all.map(({ key, version }) => `${key} ${version}`))

onPostgres("Postgres, writes with idempotency keys", () => {
  live("of nodes that are sent the same write at the same time one applies it, and all have its results", function* () {
    const url = yield* newStore
    const nodes = [yield* node(url), yield* node(url), yield* node(url)]
    for (let round = 0; round < 10; round++) {
      const outcomes = yield* together(nodes, on =>
        Effect.all(
          [
            // Their locks are asked for in any order.
            persist(writeAs(on, `a${round}`, set(namespace, "a", round))),
            persist(writeAs(on, `b${round}`, set(namespace, "b", round))),
            persist(writeAs(on, `c${round}`, del(namespace, "none"))),
            put(on, "plain", round)
          ],
          { concurrency: "unbounded" }
        )
      )
      for (const at of [0, 1, 2]) {
        const answers = outcomes.map(each => each[at]!)
        expect(answers.filter(({ isReplay }) => isReplay !== true)).toHaveLength(1)
        expect(new Set(answers.map(({ lastSeq, timestamp }) => `${lastSeq} ${timestamp}`)).size).toBe(1)
      }
      expect(outcomes.map(([a]) => a!.results[0])).toMatchObject(nodes.map(() => ({ version: round + 1 })))
    }
    expect((yield* versions(nodes[0]!)).filter(text => text.startsWith("a"))).toHaveLength(10)
    expect(yield* nodes[0]!.log.lastSeq).toBe(50)
  })

  live("a node that finds its key free, and taken once it has the lock, applies nothing", function* () {
    const url = yield* newStore
    const one = yield* node(url)
    yield* put(one, "k", 0)
    const outcome = yield* withClient(url, function* (other) {
      yield* other("BEGIN")
      yield* other("SELECT FROM causeway.log FOR UPDATE")
      const write = writeAs(one, "a", set(namespace, "other", 1), set(namespace, "k", 1))
      // On a busy machine it may wait for the lock for longer than it can.
      const writing = yield* Effect.fork(persist(write))
      yield* someoneWaits(url)
      yield* other(
        "INSERT INTO causeway.remembered_writes VALUES (300, 'a', 'digest', 9000000000000, '1700000000000,7,5,6')"
      )
      yield* other("COMMIT")
      return yield* Fiber.join(writing)
    })
    expect(outcome).toMatchObject({
      isReplay: true,
      timestamp: 1_700_000_000_000,
      lastSeq: 7,
      results: [{ version: 5 }, { version: 6 }]
    })
    expect(yield* versions(one)).toEqual(["k 1"])
  })

  live(
    "a node that finds its key free, and its condition not met because of the first try, has its results",
    function* () {
      const url = yield* newStore
      const [one, other] = [yield* node(url), yield* node(`${url}?application_name=late`)]
      yield* put(one, "k", 1)
      // The other node stops between looking its key up and its group.
      const [row] = yield* sql(url, "SELECT pg_get_functiondef('causeway.recall_writes'::regproc) AS text")
      const late = `IF current_setting('application_name') = 'late' THEN PERFORM pg_advisory_xact_lock_shared(7); END IF;`
      yield* sql(url, String(row!.text).replace("RETURN found;", `${late} RETURN found;`))
      const write = (on: Node) => writeAs(on, "a", set(namespace, "k", 2, { precondition: { match: [1] } }))
      const [first, second] = yield* withClient(url, function* (client) {
        yield* client("SELECT pg_advisory_lock(7)")
        const writing = yield* Effect.fork(persist(write(other)))
        yield* someoneWaits(url)
        const first = yield* write(one)
        yield* client("SELECT pg_advisory_unlock(7)")
        return [first, yield* Fiber.join(writing)]
      })
      expect(second).toMatchObject({ isReplay: true, lastSeq: first!.lastSeq, results: first!.results })
      expect(yield* versions(other)).toEqual(["k 1", "k 2"])
    }
  )

  const lost = (mode: Proxy.Mode, statement: string, attempt: (on: Node) => ReturnType<typeof writeAs>) =>
    Effect.gen(function* () {
      const proxy = yield* Proxy.make(yield* newStore)
      const on = yield* node(proxy.url)
      yield* put(on, "k", 1)
      proxy.set(mode, statement)
      void proxy.affected.then(() => proxy.set("open"))
      const outcome = yield* attempt(on)
      yield* Effect.promise(() => proxy.affected)
      // A group that was found to be committed, or was repeated, is none that was there before.
      expect(outcome.isReplay).toBeUndefined()
      expect(yield* attempt(on)).toMatchObject({ isReplay: true, lastSeq: outcome.lastSeq })
      return { outcome, log: yield* versions(on) }
    }).pipe(Effect.provide(quiet))

  for (const mode of ["answers lost", "requests lost"] as const) {
    live(`the node finds out the outcome of its call: ${mode}`, function* () {
      const one = yield* lost(mode, "commit_keyed", on => writeAs(on, "a", set(namespace, "k", 2)))
      expect(one).toMatchObject({ outcome: { results: [{ version: 2 }] }, log: ["k 1", "k 2"] })
      const none = yield* lost(mode, "commit_keyed", on => writeAs(on, "a", del(namespace, "none")))
      expect(none).toMatchObject({ outcome: { results: [{ deleted: false }] }, log: ["k 1"] })
      const removed = yield* lost(mode, "remove_keyed", on => commitAs(on, "a", deleteOne))
      expect(removed).toMatchObject({ outcome: { results: [{ deleted: true }], more: false }, log: ["k 1", "k 2"] })
    })
  }

  for (const [title, attempt, expected] of [
    ["a set", (on: Node) => writeAs(on, "a", set(namespace, "k", 2)), ["k 1", "l 1", "k 2"]],
    ["a delete of a prefix", (on: Node) => commitAs(on, "a", deleteOne), ["k 1", "l 1", "k 2"]]
  ] as const) {
    live(`${title} whose outcome cannot be asked for is applied once, however often it is repeated`, function* () {
      const url = yield* newStore
      const proxy = yield* Proxy.make(url)
      const [near, other] = [yield* node(proxy.url), yield* node(url)]
      yield* put(near, "k", 1)
      yield* put(near, "l", 1)
      proxy.set("answers lost")
      expect(isUnavailable(yield* Effect.either(attempt(near)))).toBe(true)
      const elsewhere = yield* attempt(other)
      proxy.set("open")
      yield* ready(near)
      const again = yield* persist(attempt(near))
      expect(again).toMatchObject({ isReplay: true, lastSeq: elsewhere.lastSeq })
      expect(Either.isRight(yield* Effect.either(attempt(other)))).toBe(true)
      expect(yield* versions(other)).toEqual(expected)
    })
  }
})
