import { describe, expect, it } from "@effect/vitest"
import { ConfigProvider, Duration, Effect, Either, Exit, Layer, Logger, Metric, Option, Scope } from "effect"
import * as TestClock from "effect/TestClock"
import { JsonText } from "../../src/base/Json/JsonText.ts"
import { decode } from "../../src/Kv/Change.ts"
import { alwaysDue, ChangeLog } from "../../src/Kv/ChangeLog.ts"
import { Store, StoreUnavailable } from "../../src/Kv/Store.ts"
import * as Housekeeping from "../../src/Storage/Housekeeping.ts"
import * as Memory from "../../src/Storage/Memory.ts"

const set = (key: string, expiresAt: number | null = null) =>
  Effect.flatMap(Store, store =>
    store.commit({
      operations: [{ op: "set", namespace: "n", key, value: JsonText("1"), expiresAt }],
      actor: "tester"
    })
  )

const ops = Effect.map(
  Effect.flatMap(ChangeLog, log => log.read({ after: 0, limit: 100, tenant: "" })),
  ({ changes }) => changes.map(decode).map(change => `${change.op} ${change.key} by ${change.actor}`)
)

describe("Housekeeping", () => {
  it.effect("an entry becomes a delete by `expiry` within a second of its expiry time", () =>
    Effect.gen(function* () {
      yield* set("short", 10_000)
      yield* set("long", 60_000)
      yield* TestClock.adjust("9 seconds")
      expect(yield* ops).toEqual(["set short by tester", "set long by tester"])
      yield* TestClock.adjust("2 seconds")
      expect(yield* ops).toEqual(["set short by tester", "set long by tester", "delete short by expiry"])
    }).pipe(Effect.provide(Layer.provideMerge(Housekeeping.layer(Option.none()), Memory.layer)))
  )

  it.effect("records older than the retention are removed, and the newest never is", () =>
    Effect.gen(function* () {
      yield* set("a")
      yield* TestClock.adjust("90 seconds")
      yield* set("b")
      const log = yield* ChangeLog
      yield* TestClock.adjust("100 seconds")
      const refused = yield* Effect.either(log.read({ after: 0, limit: 10, tenant: "" }))
      expect(Either.isLeft(refused) && refused.left).toMatchObject({ _tag: "HistoryTrimmed", trimmedSeq: 1 })
      yield* TestClock.adjust("2 minutes")
      expect((yield* log.read({ after: 1, limit: 10, tenant: "" })).changes.map(decode)).toMatchObject([
        { seq: 2, key: "b" }
      ])
    }).pipe(Effect.provide(Layer.provideMerge(Housekeeping.layer(Option.some(Duration.minutes(2))), Memory.layer)))
  )

  it.effect("without a retention everything is kept", () =>
    Effect.gen(function* () {
      yield* set("a")
      yield* set("b")
      yield* TestClock.adjust("2 minutes")
      expect(yield* ops).toHaveLength(2)
    }).pipe(
      Effect.provide(
        Layer.provideMerge(Layer.unwrapEffect(Effect.map(Housekeeping.config, Housekeeping.layer)), Memory.layer)
      ),
      Effect.withConfigProvider(ConfigProvider.fromMap(new Map()))
    )
  )

  it.effect("failed runs are counted by task, including defects; interrupted ones are not", () => {
    const counted = (task: string): unknown => {
      const tags = new Map([
        ["test_housekeeping", "failures"],
        ["task", task]
      ])
      const found = Metric.unsafeSnapshot().find(
        ({ metricKey }) =>
          metricKey.name === "store_housekeeping_failures_total" &&
          metricKey.tags.length === tags.size &&
          metricKey.tags.every(({ key, value }) => tags.get(key) === value)
      )
      return found?.metricState
    }
    const state = { away: false, attempts: 0 }
    const log = ChangeLog.of({
      read: () => Effect.die("not read from"),
      history: Effect.succeed(0),
      lastSeq: Effect.succeed(0),
      awaitPast: () => Effect.never,
      trim: () => Effect.die(new Error("a bug")),
      expire: Effect.suspend(() => {
        state.attempts++
        return state.away ? new StoreUnavailable({ reason: "the disk is full" }) : Effect.succeed(0)
      }),
      due: alwaysDue
    })
    return Effect.gen(function* () {
      const scope = yield* Scope.make()
      const built = Layer.provide(Housekeeping.layer(Option.some(Duration.seconds(1))), Layer.succeed(ChangeLog, log))
      yield* Layer.buildWithScope(built, scope)
      expect([counted("expiry"), counted("retention")]).toMatchObject([{ count: 0 }, { count: 0 }])
      yield* TestClock.adjust("1 millis")
      expect([counted("expiry"), counted("retention")]).toMatchObject([{ count: 0 }, { count: 1 }])
      state.away = true
      yield* TestClock.adjust("150 seconds")
      expect(counted("retention")).toMatchObject({ count: 3 })
      const { attempts } = state
      expect(attempts).toBeGreaterThan(100)
      expect(counted("expiry")).toMatchObject({ count: attempts - 1 })
      yield* Scope.close(scope, Exit.void)
      expect(counted("expiry")).toMatchObject({ count: attempts - 1 })
    }).pipe(Effect.tagMetrics("test_housekeeping", "failures"), Effect.provide(Logger.remove(Logger.defaultLogger)))
  })
})
