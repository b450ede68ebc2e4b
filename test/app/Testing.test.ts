/**
 * Virtual time for hosts: whatever waits goes by the test's clock, also over real sockets. Whatever is imported comes
 * from what the package exports.
 */
import { describe, expect, it } from "@effect/vitest"
import { Duration, Effect, Layer, Option, TestClock } from "effect"
import { WebSocket } from "ws"
import { ChangeLog, decodeChange, Housekeeping, Json, Store, Tracer } from "../../src/exports/index.ts"
import { sqlite } from "../../src/exports/store.ts"
import {
  AgentPlatformInMemory,
  InferenceInMemory,
  SessionEventsInMemory,
  StoreInMemory,
  Time
} from "../../src/exports/testing.ts"
import * as Registry from "../../src/Gateway/Sessions/Registry.ts"
import * as Settings from "../../src/Gateway/Sessions/Settings.ts"
import { Sessions } from "../../src/Gateway/Sessions.ts"
import { key, serve } from "../Http/Platform/Host.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { test } from "../Tests.ts"

const set = (name: string, expiresAt: number | null = null) =>
  Effect.flatMap(Store.Store, store =>
    store.commit({
      actor: "host",
      operations: [{ op: "set", namespace: "tenant:a/x", key: name, value: Json.JsonText("1"), expiresAt }]
    })
  )

const readAfter = (after: number) =>
  Effect.flatMap(ChangeLog.ChangeLog, log => log.read({ after, limit: 100, tenant: "" })).pipe(
    Effect.map(({ changes }) => changes.map(decodeChange))
  )

const housekeeping = Housekeeping.layer(Option.some(Duration.hours(1)))

/** Counts how often housekeeping looks whether there is something to do. */
const looks = { count: 0 }

const counted = Layer.effect(
  ChangeLog.ChangeLog,
  Effect.map(ChangeLog.ChangeLog, log => ({
    ...log,
    due: Effect.zipRight(
      Effect.sync(() => looks.count++),
      log.due
    )
  }))
).pipe(Layer.provideMerge(StoreInMemory.layer))

describe("virtual time", () => {
  it.scoped("expires entries at their time, and wakes up for nothing else", () =>
    Effect.gen(function* () {
      looks.count = 0
      yield* set("short", Duration.toMillis("30 minutes"))
      yield* set("long", Duration.toMillis("90 minutes"))
      yield* TestClock.adjust("2 hours")
      const deleted = (yield* readAfter(2)).map(({ op, key, actor, timestamp }) => [op, key, actor, timestamp])
      expect(deleted).toEqual([
        ["delete", "short", "expiry", Duration.toMillis("30 minutes")],
        ["delete", "long", "expiry", Duration.toMillis("90 minutes")]
      ])
      expect(looks.count).toBeLessThan(100)
      const before = looks.count
      yield* TestClock.adjust("10 days")
      expect(looks.count).toBe(before)
    }).pipe(Effect.provide(Layer.provideMerge(Housekeeping.layer(Option.none()), counted)))
  )

  test.scoped("removes change records at the end of their retention, on disk", function* () {
    const directory = yield* temporaryDirectory
    yield* Effect.gen(function* () {
      yield* set("a")
      yield* set("b", Duration.toMillis("90 minutes"))
      yield* Time.pass("2 hours", "10 minutes")
      // The writer answers from a thread of its own.
      const trimmed = Effect.flip(readAfter(1))
      yield* Effect.repeat(Effect.zipRight(Time.breathe, Effect.option(trimmed)), { until: Option.isSome })
      expect((yield* readAfter(2)).map(({ op, key }) => [op, key])).toEqual([["delete", "b"]])
    }).pipe(Effect.provide(Layer.provideMerge(housekeeping, sqlite(directory))))
  })

  for (const kind of ["stock", "edge"] as const) {
    test.scoped(`sends the heartbeat of a WebSocket over a socket, on ${kind}`, function* () {
      const port = yield* serve(kind)
      const messages: Array<unknown> = []
      const client = yield* Effect.acquireRelease(
        Effect.async<WebSocket>(resume => {
          const headers = { authorization: `Bearer ${key}` }
          const socket = new WebSocket(`ws://127.0.0.1:${port}/api/v1/changes/ws`, { headers })
          socket.on("message", data => messages.push(JSON.parse(String(data))))
          socket.on("open", () => resume(Effect.succeed(socket)))
        }),
        socket => Effect.sync(() => socket.terminate())
      )
      yield* Time.breathe
      yield* Time.pass("14 seconds", "1 second")
      expect(messages).toEqual([])
      yield* Time.pass("2 seconds", "1 second")
      yield* Time.until(() => messages.length > 0)
      expect(messages).toMatchObject([{ type: "heartbeat", lastSeq: 0 }])
      client.terminate()
    })
  }

  it.scoped("deactivates an idle session", () =>
    Effect.gen(function* () {
      const sessions = yield* Sessions
      const alice = { tenant: "acme", actor: "alice" }
      const { id } = yield* sessions.create(alice, { agentType: "echo" })
      yield* sessions.start(alice, id)
      const { turnId } = yield* Effect.map(sessions.send(alice, id, "hello"), turnId => ({ turnId }))
      expect(turnId).toBeTypeOf("string")
      yield* TestClock.adjust("9 minutes")
      expect((yield* sessions.get(alice, id)).state).toBe("active")
      // Being asked for was a use of it.
      yield* TestClock.adjust("11 minutes")
      expect((yield* sessions.get(alice, id)).state).toBe("inactive")
    }).pipe(
      Effect.provide(
        Registry.layer({ ...Settings.defaults, idleTimeout: Duration.minutes(10) }).pipe(
          Layer.provide(
            Layer.mergeAll(
              AgentPlatformInMemory.layer(),
              InferenceInMemory.layer(),
              StoreInMemory.layer,
              SessionEventsInMemory.layer(),
              Tracer.layer
            )
          )
        )
      )
    )
  )
})
