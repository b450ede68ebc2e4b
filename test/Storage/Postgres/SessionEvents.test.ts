/** The session event log over PostgreSQL: epochs of histories, appends, and failures of the database. */

import { randomUUID } from "node:crypto"
import { expect, it } from "@effect/vitest"
import { Context, Duration, Effect, Either, Option } from "effect"
import pg from "pg"
import { type Append, SessionEvents } from "../../../src/Gateway/SessionEvents.ts"
import { keyOf } from "../../../src/Gateway/Sessions/Session/SessionRecords.ts"
import { StoreUnavailable } from "../../../src/Kv/Store.ts"
import * as SessionWriter from "../../../src/Storage/Postgres/SessionEvents/SessionWriter.ts"
import { alice, history, listen, make, statesOf } from "../../Gateway/Fixture.ts"
import { createDatabase, newStore, nodeLayer, optionsOf, server, sql } from "../../postgres/Databases.ts"
import { live, onPostgres, quiet, together } from "../../postgres/Live.ts"
import { persist } from "../../postgres/Opened.ts"
import * as Proxy from "../../postgres/Proxy.ts"
import { append, brief, node, textsOf } from "./SessionEvents/Fixture.ts"

onPostgres("The session event log in PostgreSQL", () => {
  live("a history that is opened after a fail-over has another epoch, once, and all that is left of it", function* () {
    const url = yield* newStore
    const [{ events: one }, { events: other }] = [yield* node(url), yield* node(url)]
    yield* one.open("t/s", "e1")
    yield* append(one, "t/s", 0, ["1", "2"], { recoveryState: "open" })
    // As after a promotion of a standby, which may lack the newest events.
    yield* sql(url, "SELECT causeway.renew_epoch()")
    // The owner knows where the history ends.
    yield* append(one, "t/s", 2, ["3"], { recoveryState: "open" })
    yield* one.release("t/s")
    const opened = yield* other.open("t/s", "e1")
    expect(opened).toMatchObject({ headSeq: 3, trimmedSeq: 0, recoveryState: "open" })
    expect(opened.epoch).toMatch(/^[0-9a-f]{16}$/)
    expect(opened).toMatchObject(Option.getOrThrow(yield* one.find("t/s")))
    expect(yield* textsOf(one, "t/s")).toEqual(["1", "2", "3"])
    yield* append(other, "t/s", 3, ["4"], { epoch: opened.epoch })
    // It stays as long as the database does not change.
    expect((yield* other.open("t/s", "e1")).epoch).toBe(opened.epoch)
    yield* other.release("t/s")
    expect((yield* one.open("t/s", "e1")).epoch).toBe(opened.epoch)
    // It can be given another one, and keeps it.
    yield* sql(url, "SELECT causeway.renew_epoch()")
    expect((yield* one.renewEpoch("t/s", "e5")).epoch).toBe("e5")
    expect((yield* one.open("t/s", "e6")).epoch).toBe("e5")
  })

  live("a history without an epoch of the database keeps its own when it is first opened", function* () {
    const url = yield* newStore
    const { events } = yield* node(url)
    yield* events.open("t/s", "e1")
    yield* sql(url, "UPDATE causeway.histories SET database_epoch = NULL")
    expect((yield* events.open("t/s", "e2")).epoch).toBe("e1")
    yield* sql(url, "SELECT causeway.renew_epoch()")
    expect((yield* events.open("t/s", "e2")).epoch).not.toBe("e1")
  })

  live("an append of a delta updates no index of its history, and one that changes the activity does", function* () {
    const url = yield* newStore
    yield* node(url)
    const own = "00000000-0000-0000-0000-000000000001"
    yield* sql(url, `INSERT INTO causeway.histories (session, epoch, owner, token) VALUES ('t/s', 'e', '${own}', 1)`)
    /** The updates of the history by an append that is rolled back, and those of them that updated no index. */
    const updatesBy = (rest: Partial<Append>) =>
      Effect.promise(async () => {
        const client = new pg.Client({ connectionString: url })
        await client.connect()
        await client.query("BEGIN")
        const write = { op: "append", session: "t/s", epoch: "e", after: 0, timestamp: 1, texts: ["{}"] } as const
        const { parameters } = SessionWriter.encode(
          [{ ...write, recoveryState: null, ...rest }],
          { node: own, lease: 10_000, tokenOf: () => 1 },
          { events: 100, bytes: 1e6 }
        )
        const call = "SELECT causeway.write_sessions($1, $2, $3, $4, $5, $6, $7, $8) AS outcomes"
        const { rows } = await client.query(call, [randomUUID(), ...parameters])
        expect(rows).toEqual([{ outcomes: "[null]" }])
        const counts = await client.query(
          `SELECT pg_stat_get_xact_tuples_updated(r)::int AS updates, pg_stat_get_xact_tuples_hot_updated(r)::int AS hot
           FROM CAST('causeway.histories' AS regclass) r`
        )
        await client.end()
        return counts.rows[0]
      })
    expect(yield* updatesBy({})).toEqual({ updates: 1, hot: 1 })
    const activity = { running: true, waiting: false, failed: false, at: Number.MAX_SAFE_INTEGER }
    expect(yield* updatesBy({ activity })).toEqual({ updates: 1, hot: 0 })
  })

  // The time limit of a group is by the test's clock, which does not advance, as a machine may be slow.
  it.scoped("writes of many sessions share calls, none is in the change log, and one that is refused fails alone", () =>
    Effect.gen(function* () {
      const url = yield* newStore
      const { events, log } = yield* node(url)
      const sessions = Array.from({ length: 100 }, (_, index) => `t/${index}`)
      yield* together(sessions, session => events.open(session, "e1"))
      const commits = Effect.map(sql(url, "SELECT count(*)::int AS n FROM causeway.commits"), ([row]) => Number(row?.n))
      expect(yield* commits).toBeLessThanOrEqual(3)
      // The database takes no such character; the events of sessions never have it.
      const outcomes = yield* together(sessions, (session, index) =>
        Effect.either(append(events, session, 0, [index === 50 ? "\u0000" : session]))
      )
      expect(outcomes.flatMap((outcome, index) => (Either.isLeft(outcome) ? [index] : []))).toEqual([50])
      expect(yield* textsOf(events, "t/51")).toEqual(["t/51"])
      expect(yield* textsOf(events, "t/50")).toEqual([])
      expect(yield* log.lastSeq).toBe(0)
    }).pipe(Effect.provide(quiet))
  )

  live("a checkpoint is stored by any node, and none is left of a session that is removed at the time", function* () {
    const url = yield* newStore
    const [{ events: one }, { events: other }] = [yield* node(url), yield* node(url)]
    yield* one.open("t/s", "e1")
    yield* append(one, "t/s", 0, ["1", "2"])
    yield* other.saveCheckpoint("t/s", { epoch: "e1", seq: 2, text: "{}" })
    expect(yield* one.checkpoint("t/s")).toEqual(Option.some({ epoch: "e1", seq: 2, text: "{}" }))
    const sessions = Array.from({ length: 20 }, (_, index) => `t/${index}`)
    yield* together(sessions, session => one.open(session, "e1"))
    yield* together(sessions, (session, index) => {
      const save = other.saveCheckpoint(session, {
        epoch: "e1",
        seq: 0,
        text: JSON.stringify("x".repeat(1000 * index))
      })
      return together([save, one.remove(session), save], effect => effect)
    })
    const rows = yield* sql(url, "SELECT history FROM causeway.checkpoints")
    expect(rows).toHaveLength(1)
  })

  live("an append whose answer is lost is found out about, and not repeated", function* () {
    const proxy = yield* Proxy.make(yield* newStore)
    const { events } = yield* node(proxy.url)
    yield* events.open("t/s", "e1")
    proxy.set("answers lost", "write_sessions")
    void proxy.affected.then(() => proxy.set("open"))
    yield* append(events, "t/s", 0, ["1"])
    yield* Effect.promise(() => proxy.affected)
    yield* append(events, "t/s", 1, ["2"])
    expect(yield* textsOf(events, "t/s")).toEqual(["1", "2"])
  })

  live("histories are unavailable while the database is not there at the start, and are there with it", function* () {
    const own = yield* server({})
    const url = yield* Effect.promise(() => createDatabase(own))
    yield* Effect.promise(() => own.stop("fast"))
    const { events } = yield* node(url, brief)
    for (const call of [events.open("t/s", "e1"), events.find("t/s"), events.unfinished, events.trim(Duration.zero)]) {
      expect(yield* Effect.flip<unknown, unknown, never>(call)).toBeInstanceOf(StoreUnavailable)
    }
    yield* Effect.promise(() => own.start())
    expect(yield* persist(events.open("t/s", "e1"))).toMatchObject({ headSeq: 0 })
    expect(Option.isSome(yield* events.find("t/s"))).toBe(true)
  })

  live("ids of receipts may have any characters", function* () {
    const { events } = yield* node(yield* newStore)
    yield* events.open("t/s", "e1")
    const ids = ["\u0000", "\ud800", "\udc00", '"', "ä"]
    for (const [seq, id] of ids.entries()) {
      yield* append(events, "t/s", seq, ["x"], { receipt: { id, digest: String(seq), turnId: null } })
    }
    for (const [seq, id] of ids.entries()) {
      expect(yield* events.receipt("t/s", id)).toEqual(Option.some({ id, digest: String(seq), turnId: null }))
    }
  })
})

/** A gateway over a database of which the newest events of its sessions can be lost. */
const gateway = Effect.gen(function* () {
  const url = yield* newStore
  const { start, stored } = yield* make({ stored: nodeLayer(optionsOf(url)) })
  const lose = (kept: number) =>
    Effect.all([
      sql(url, `DELETE FROM causeway.events WHERE seq > ${kept}`),
      sql(url, `UPDATE causeway.histories SET head = ${kept}`)
    ])
  /** As after a promotion of a standby that has only the first events. */
  const failOver = (kept: number) => Effect.zipRight(lose(kept), sql(url, "SELECT causeway.renew_epoch()"))
  return { start, url, lose, failOver, events: Context.get(stored, SessionEvents) }
})

onPostgres("A session whose newest events are lost", () => {
  const turn = Effect.gen(function* () {
    const context = yield* gateway
    const { sessions } = yield* context.start
    const { epoch, id } = yield* sessions.create(alice, { agentType: "echo" })
    const listener = yield* listen(sessions, id)
    yield* sessions.send(alice, id, "one")
    yield* listener.until(({ type }) => type === "turn_completed")
    return { ...context, sessions, id, epoch, listener }
  })

  for (const isNoticed of [true, false]) {
    const name = isNoticed ? "" : ", also if the database has its former epoch"
    it.scopedLive(`continues with what is left in another epoch when a client subscribes${name}`, () =>
      continues(isNoticed)
    )
  }

  const continues = (isNoticed: boolean) =>
    Effect.gen(function* () {
      const { epoch, failOver, id, listener, lose, sessions } = yield* turn
      const before = listener.events.slice(0, 2)
      yield* isNoticed ? failOver(2) : lose(2)
      const { subscription } = yield* listen(sessions, id)
      expect(subscription.epoch).not.toBe(epoch)
      const left = yield* history(subscription)
      expect(left.slice(0, 2)).toEqual(before)
      expect(statesOf(left)).toEqual(["activating", "active", "inactive"])
      yield* listener.untilLost
    }).pipe(Effect.provide(quiet))

  live("has another epoch when a node asks for it", function* () {
    const { epoch, failOver, id, sessions } = yield* turn
    yield* failOver(2)
    // It answers from memory if the database does not answer in time.
    yield* Effect.repeat(sessions.get(alice, id), { until: session => session.epoch !== epoch })
  })

  live("has another epoch if its whole history is lost, and its record is not", function* () {
    const { events, start, url } = yield* gateway
    const first = yield* start
    const { epoch, id } = yield* first.sessions.create(alice, { agentType: "echo" })
    const find = Effect.flatten(events.find(keyOf(alice.tenant, id)))
    expect(yield* find).toMatchObject({ epoch, headSeq: 0 })
    yield* first.stop
    yield* sql(url, "DELETE FROM causeway.histories")
    const { sessions } = yield* start
    const { subscription } = yield* listen(sessions, id)
    expect(subscription.epoch).not.toBe(epoch)
    expect(yield* find).toMatchObject({ epoch: subscription.epoch })
  })
})
