import { describe, expect, it } from "@effect/vitest"
import { Context, Effect, Fiber, Layer, Option, Redacted } from "effect"
import pg from "pg"
import { ChangeLog } from "../../../src/Kv/ChangeLog.ts"
import { Store } from "../../../src/Kv/Store.ts"
import * as DatabaseClock from "../../../src/Storage/Postgres/Database/DatabaseClock.ts"
import * as Pool from "../../../src/Storage/Postgres/Database/Pool.ts"
import * as LogNotifications from "../../../src/Storage/Postgres/Kv/LogEnd.ts"
import { LogEnd } from "../../../src/Storage/Postgres/Kv/LogEnd.ts"
import { SessionNotifications } from "../../../src/Storage/Postgres/SessionEvents/SessionNotifications.ts"
import type * as Postgres from "../../../src/Storage/Postgres.ts"
import { createDatabase, newStore, optionsOf, server, sql } from "../../postgres/Databases.ts"
import { live, onPostgres } from "../../postgres/Live.ts"
import * as Opened from "../../postgres/Opened.ts"
import * as Proxy from "../../postgres/Proxy.ts"
import { onlyLong } from "../../Scale.ts"
import { set } from "../../suites/Store/Fixture.ts"
import { test } from "../../Tests.ts"

const { bySystemClock, offsetOf, withSample } = DatabaseClock

const poolOf = (url: string) => Pool.make({ url: Redacted.make(url), isPooled: false, max: 2, statementTimeout: 1900 })

/** A listener that asks nothing, so that only notifications can wake it. */
const listener = (url: string, ask: Effect.Effect<void> = Effect.never) =>
  Effect.gen(function* () {
    const end = new LogEnd()
    const sessions = new SessionNotifications()
    const notifications = yield* LogNotifications.make({
      pool: yield* poolOf(url),
      url: Redacted.make(url),
      end,
      ask,
      sessions
    })
    return { end, notifications, sessions }
  })

/** Notifies of a growing `seq` until a node has received it: a node that has just started to listen has missed earlier ones. */
const announceUntilHeard = (notifications: LogNotifications.LogNotifications, { end }: { readonly end: LogEnd }) =>
  Effect.gen(function* () {
    const heard = yield* Effect.fork(end.awaitPast(end.last))
    let seq = end.last + 1000
    yield* Effect.raceFirst(
      Fiber.join(heard),
      Effect.forever(
        Effect.zipRight(
          Effect.sync(() => notifications.committed(++seq)),
          Effect.sleep("20 millis")
        )
      )
    )
    expect(end.last).toBeGreaterThan(0)
  })

describe("the time of the database", () => {
  it("is taken from the shortest round trip, and is the node's own if the measurement cannot distinguish the two", () => {
    expect(offsetOf([], 7)).toBe(7)
    expect(offsetOf([{ offset: 10, roundTrip: 6 }], 7)).toBe(7)
    expect(
      offsetOf(
        [
          { offset: 900, roundTrip: 500 },
          { offset: 1000.5, roundTrip: 2 },
          { offset: 1100, roundTrip: 300 }
        ],
        7
      )
    ).toBe(1000.5)
    expect(offsetOf([{ offset: -5000, roundTrip: 1 }], 7)).toBe(-5000)
  })

  it("is measured again after it was set: measurements that contradict the newest one no longer count", () => {
    const before = Array.from({ length: 20 }, (_, n) => ({ offset: n % 2, roundTrip: 1 })).reduce<
      ReadonlyArray<DatabaseClock.Sample>
    >(withSample, [])
    expect(before).toHaveLength(8)
    const after = withSample(before, { offset: -60_000, roundTrip: 400 })
    expect(offsetOf(after, 0)).toBe(-60_000)
    expect(withSample(before, { offset: 200, roundTrip: 400 })).toHaveLength(8)
  })

  test.scoped("continues when the wall clock of a node is set, and is that of a test's clock", function* () {
    const original = Date.now
    yield* Effect.addFinalizer(() =>
      Effect.sync(() => {
        Date.now = original
      })
    )
    const ofSystem = yield* bySystemClock(DatabaseClock.make)
    const ofTest = yield* DatabaseClock.make
    expect(ofSystem.lastServerTime()).toBe(Number.NEGATIVE_INFINITY)
    const answered = Effect.sync(() => ({ now: original() - 3_600_000 }))
    for (const clock of [ofSystem, ofTest]) yield* clock.measure(answered)
    const anHourAgo = ofSystem.now()
    expect(Math.abs(anHourAgo - (original() - 3_600_000))).toBeLessThan(1_800_000)
    Date.now = () => original() + 86_400_000
    expect(ofSystem.now() - anHourAgo).toBeLessThan(1_800_000)
    expect(ofTest.now()).toBe(0)
    expect(ofTest.lastServerTime()).toBeGreaterThan(0)
  })
})

onPostgres("Postgres, wake-ups", () => {
  live("a notification of another node wakes, without any question", function* () {
    const url = yield* newStore
    const [one, other] = [yield* listener(url), yield* listener(url)]
    yield* announceUntilHeard(one.notifications, other)
  })

  live("a log that ends earlier than before, as after a fail-over, is announced too", function* () {
    const url = yield* newStore
    const { notifications } = yield* listener(url)
    const client = yield* Effect.acquireRelease(
      Effect.promise(async () => {
        const client = new pg.Client({ connectionString: url })
        await client.connect()
        await client.query("LISTEN causeway_changes")
        return client
      }),
      client => Effect.promise(() => client.end())
    )
    for (const lastSeq of [1000, 5]) {
      const payload = Effect.async<string | undefined>(resume => {
        client.once("notification", ({ payload }) => resume(Effect.succeed(payload)))
        notifications.committed(lastSeq)
      })
      expect(yield* payload).toBe(String(lastSeq))
    }
  })

  live("a listening connection that ends is replaced", function* () {
    const url = yield* newStore
    const proxy = yield* Proxy.make(url)
    const [one, other] = [yield* listener(url), yield* listener(proxy.url)]
    yield* announceUntilHeard(one.notifications, other)
    yield* Effect.promise(() => proxy.cut(false))
    yield* announceUntilHeard(one.notifications, other)
  })

  onlyLong(live)("a listening connection into a black hole is detected by its probe and replaced", function* () {
    const url = yield* newStore
    const proxy = yield* Proxy.make(url)
    const [one, other] = [yield* listener(url), yield* listener(proxy.url)]
    yield* announceUntilHeard(one.notifications, other)
    proxy.set("black hole")
    // The probe is the first to notice.
    yield* Effect.promise(() => proxy.affected)
    proxy.set("open")
    yield* announceUntilHeard(one.notifications, other)
  })

  live("a follower wakes for a write on another node while its listening connection is in a black hole", function* () {
    const url = yield* newStore
    const proxy = yield* Proxy.make(url)
    const build = (options: Postgres.Options) => Layer.build(Opened.layer(options))
    const writer = Context.get(yield* build(optionsOf(url)), Store)
    const log = Context.get(
      yield* build({ ...optionsOf(url), directUrl: Option.some(Redacted.make(proxy.url)) }),
      ChangeLog
    )
    proxy.set("black hole")
    const waiting = yield* Effect.fork(log.awaitPast(0))
    yield* writer.commit({ operations: [set("n", "k", 1)], actor: "tester" })
    yield* Fiber.join(waiting)
    expect(yield* log.lastSeq).toBe(1)
  })

  live("followers of a log that ends before what they have seen are woken", function* () {
    const database = yield* server({})
    const url = yield* Effect.promise(() => createDatabase(database))
    const context = yield* Layer.build(Opened.layer(optionsOf(url)))
    const [log, store] = [Context.get(context, ChangeLog), Context.get(context, Store)]
    for (let n = 0; n < 3; n++) yield* store.commit({ operations: [set("n", "k", n)], actor: "tester" })
    const waiting = yield* Effect.fork(log.awaitPast(3))
    yield* sql(url, "DELETE FROM causeway.changes WHERE seq = 3")
    yield* Fiber.join(waiting)
  })
})

/** Nodes that commit in turn, one a millisecond, and receive notifications at once. Returns the notifications. */
const play = (nodes: number, millis: number) => {
  let now = 1000
  const all = Array.from({ length: nodes }, () => new LogNotifications.NotificationSchedule(() => now))
  const sent: Array<{ readonly at: number; readonly node: number; readonly lastSeq: number }> = []
  for (let seq = 1; seq <= millis; seq++) {
    now++
    all[seq % nodes]!.committed(seq)
    for (const [node, schedule] of all.entries()) {
      if (!schedule.isPending || schedule.wait() > 0) continue
      const lastSeq = schedule.take()!
      sent.push({ at: now - 1000, node, lastSeq })
      for (const other of all) other.received(lastSeq)
    }
  }
  return sent
}

describe("NotificationSchedule", () => {
  for (const nodes of [1, 2, 3, 10]) {
    it(`${nodes} nodes send one notification in ten milliseconds, and the last write is never far ahead of it`, () => {
      const sent = play(nodes, 1000)
      expect(sent.length).toBeGreaterThan(80)
      expect(sent.length).toBeLessThanOrEqual(100)
      for (const [index, { at, lastSeq }] of sent.entries()) {
        expect(at - lastSeq).toBeLessThan(10)
        if (index > 0) expect(at - sent[index - 1]!.at).toBeGreaterThanOrEqual(10)
      }
    })
  }

  it("a commit that another node has notified with a later one is not notified again", () => {
    let now = 0
    const schedule = new LogNotifications.NotificationSchedule(() => now)
    schedule.committed(7)
    expect(schedule.isPending).toBe(true)
    now = 5
    schedule.received(9)
    expect(schedule.isPending).toBe(false)
    expect(schedule.take()).toBe(undefined)
    schedule.committed(7)
    expect(schedule.isPending).toBe(false)
  })

  it("an earlier one delays it by an interval, but not without a limit", () => {
    let now = 0
    const schedule = new LogNotifications.NotificationSchedule(() => now)
    schedule.committed(7)
    expect(schedule.wait()).toBe(10)
    for (now = 5; now < 50; now += 5) {
      schedule.received(6)
      expect(schedule.wait()).toBe(Math.min(10, 50 - now))
    }
    expect(schedule.wait()).toBe(0)
    expect(schedule.take()).toBe(7)
  })

  it("a commit of another log, which has lower numbers, is notified too, though the echo of the last one arrives late", () => {
    const schedule = new LogNotifications.NotificationSchedule(() => 0)
    schedule.committed(100)
    expect(schedule.take()).toBe(100)
    schedule.committed(3)
    schedule.received(100)
    expect(schedule.take()).toBe(3)
  })
})
