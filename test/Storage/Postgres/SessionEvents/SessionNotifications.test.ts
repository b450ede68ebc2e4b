import { assert, describe, it } from "@effect/vitest"
import { Effect, Option, Redacted, TestClock } from "effect"
import * as fc from "fast-check"
import pg from "pg"
import { Changes } from "../../../../src/Simulator/Changes.ts"
import * as Pool from "../../../../src/Storage/Postgres/Database/Pool.ts"
import * as LogNotifications from "../../../../src/Storage/Postgres/Kv/LogEnd.ts"
import { LogEnd } from "../../../../src/Storage/Postgres/Kv/LogEnd.ts"
import {
  channel,
  hashOf,
  payloadsOf,
  SessionNotifications
} from "../../../../src/Storage/Postgres/SessionEvents/SessionNotifications.ts"
import { newStore, sql } from "../../../postgres/Databases.ts"
import { quiet } from "../../../postgres/Live.ts"
import { reasonToSkip } from "../../../postgres/Server.ts"

/** Counts the calls for a session. */
const watching = (signals: SessionNotifications, session: string) => {
  const changes = new Changes()
  let calls = 0
  const stop = signals.watch(session, () => {
    calls++
    changes.notify()
  })
  const called = Effect.suspend(() => {
    const before = calls
    return changes.until(() => (calls > before ? Option.some(calls) : Option.none()))
  })
  return { called, calls: () => calls, stop }
}

describe("notifications of sessions", () => {
  it("name them by hashes that are the same everywhere, in payloads that PostgreSQL takes", () => {
    assert.strictEqual(hashOf(""), "811c9dc5")
    assert.strictEqual(hashOf("a"), "e40c292c")
    fc.assert(
      fc.property(fc.uniqueArray(fc.string(), { maxLength: 3000 }), sessions => {
        const hashes = new Set(sessions.map(hashOf))
        const payloads = payloadsOf(hashes)
        for (const payload of payloads) assert.isBelow(payload.length, 8000)
        assert.deepStrictEqual(new Set(payloads.join("").match(/.{8}/g) ?? []), hashes)
      }),
      { numRuns: 30 }
    )
  })

  it("wake watchers of one of them, until they stop", () => {
    const signals = new SessionNotifications()
    const [one, other, same] = ["acme/1", "acme/2", "acme/1"].map(session => watching(signals, session))
    const calls = () => [one!.calls(), other!.calls(), same!.calls()]
    signals.changed("acme/1")
    assert.deepStrictEqual(calls(), [1, 0, 1])
    signals.received(`${hashOf("acme/2")}${hashOf("acme/3")}`)
    assert.deepStrictEqual(calls(), [1, 1, 1])
    signals.received("nonsense")
    one!.stop()
    one!.stop()
    signals.changed("acme/1")
    assert.deepStrictEqual(calls(), [1, 1, 2])
    same!.stop()
    signals.received(hashOf("acme/1"))
    assert.deepStrictEqual(calls(), [1, 1, 2])
  })

  it.scopedLive.skipIf(reasonToSkip !== undefined)(
    `are sent by the node that made a change, and what is missed of them is found by asking ${reasonToSkip ?? ""}`,
    () =>
      Effect.gen(function* () {
        const url = yield* newStore
        const node = Effect.gen(function* () {
          const sessions = new SessionNotifications()
          const options = { url: Redacted.make(url), isPooled: false, max: 2, statementTimeout: 1900 }
          const pool = yield* Pool.make(options)
          yield* LogNotifications.make({ pool, url: options.url, end: new LogEnd(), ask: Effect.never, sessions })
          return sessions
        })
        const [one, other] = [yield* node, yield* node]
        const there = watching(other, "acme/1")
        // It listens by now, and has asked once.
        yield* there.called
        yield* Effect.repeat(Effect.sleep("20 millis"), { until: () => other.isListening })
        const notified = yield* Effect.fork(there.called)
        yield* Effect.yieldNow()
        // Nothing is stored, so that only the notification can wake it.
        one.changed("acme/1")
        yield* notified
        const found = yield* Effect.fork(there.called)
        yield* Effect.yieldNow()
        // No notification was sent for this change.
        yield* sql(url, "INSERT INTO causeway.histories (session, epoch, head) VALUES ('acme/1', 'e', 1)")
        yield* found
        const unknown = watching(other, "acme/2")
        const woken = yield* Effect.fork(unknown.called)
        yield* Effect.yieldNow()
        yield* sql(url, `SELECT pg_notify('${channel}', '*')`)
        yield* woken
      }).pipe(Effect.provide(quiet))
  )

  it.scoped("do not wake the watchers of a history that is asked for and has not changed", () =>
    Effect.gen(function* () {
      const signals = new SessionNotifications()
      const { calls } = watching(signals, "acme/1")
      yield* signals.run({ read: ({ decode }) => Effect.sync(() => decode([["acme/1", "e 1"]])) })
      yield* TestClock.adjust("5 seconds")
      assert.strictEqual(calls(), 1)
    })
  )

  it.scopedLive.skipIf(reasonToSkip !== undefined)(`are sent without a flush ${reasonToSkip ?? ""}`, () =>
    Effect.gen(function* () {
      const client = new pg.Client(yield* newStore)
      yield* Effect.acquireRelease(
        Effect.promise(() => client.connect()),
        () => Effect.promise(() => client.end())
      )
      const settings: Array<unknown> = []
      /** Runs a statement in a transaction that would be flushed, and looks whether it still would. */
      const read: Pool.Pool["read"] = ({ text, values }) =>
        Effect.promise(async () => {
          await client.query("BEGIN; SET LOCAL synchronous_commit = on")
          await client.query(text, [...values])
          const { rows } = await client.query("SHOW synchronous_commit")
          await client.query("ROLLBACK")
          settings.push(rows[0].synchronous_commit)
          changes.notify()
        }).pipe(Effect.zipRight(Effect.never))
      const changes = new Changes()
      const signals = new SessionNotifications()
      yield* signals.run({ read })
      signals.changed("acme/1")
      yield* changes.until(() => (settings.length > 0 ? Option.some(settings) : Option.none()))
      assert.deepStrictEqual(settings, ["off"])
    })
  )
})
