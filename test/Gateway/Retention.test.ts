/** Events of sessions past their age are removed in the background, and failures of that are counted. */
import { describe, expect, it } from "@effect/vitest"
import { Duration, Effect, Exit, Layer, Logger, Metric, Scope } from "effect"
import * as TestClock from "effect/TestClock"
import * as Memory from "../../src/Gateway/SessionEvents/Memory.ts"
import * as Retention from "../../src/Gateway/SessionEvents/Retention.ts"
import { SessionEvents } from "../../src/Gateway/SessionEvents.ts"
import { StoreUnavailable } from "../../src/Kv/Store.ts"

/** How many runs have failed, as this instance counts them; `undefined` where nothing is registered. */
const failures = (instance: string): number | undefined => {
  const found = Metric.unsafeSnapshot().find(
    ({ metricKey: { name, tags } }) =>
      name === "store_housekeeping_failures_total" &&
      tags.some(({ key, value }) => key === "task" && value === "session_events") &&
      tags.some(({ key, value }) => key === "test_retention" && value === instance)
  )
  return found === undefined ? undefined : (found.metricState as unknown as { readonly count: number }).count
}

/** Session events whose removal has the outcome that is set, and counts its runs. */
const setup = Effect.gen(function* () {
  const state: { outcome: Effect.Effect<number, StoreUnavailable>; runs: number } = {
    outcome: Effect.succeed(0),
    runs: 0
  }
  const replaced = Layer.effect(
    SessionEvents,
    Effect.map(SessionEvents, port => ({
      ...port,
      trim: () =>
        Effect.suspend(() => {
          state.runs++
          return state.outcome
        })
    }))
  )
  const scope = yield* Scope.make()
  const build = (age: Duration.Duration) =>
    Layer.buildWithScope(Layer.provide(Retention.layer(age), Layer.provide(replaced, Memory.layer())), scope)
  return { state, build, close: Scope.close(scope, Exit.void) }
})

describe("retention of session events", () => {
  it.effect("runs each hour, and each minute while it fails; failures are counted, defects included", () =>
    Effect.gen(function* () {
      const { build, close, state } = yield* setup
      const seen = () => [state.runs, failures("long")]
      expect(failures("long")).toBeUndefined()
      yield* build(Duration.days(7))
      yield* TestClock.adjust("59 minutes")
      expect(seen()).toEqual([1, 0])
      state.outcome = new StoreUnavailable({ reason: "the disk is full" })
      yield* TestClock.adjust("1 minute")
      expect(seen()).toEqual([2, 1])
      yield* TestClock.adjust("10 minutes")
      expect(seen()).toEqual([12, 11])
      state.outcome = Effect.die(new Error("a bug"))
      yield* TestClock.adjust("1 minute")
      expect(seen()).toEqual([13, 12])
      state.outcome = Effect.succeed(0)
      yield* TestClock.adjust("1 minute")
      expect(seen()).toEqual([14, 12])
      yield* TestClock.adjust("59 minutes")
      expect(seen()).toEqual([14, 12])
      state.outcome = Effect.never
      yield* TestClock.adjust("1 minute")
      yield* close
      expect(seen()).toEqual([15, 12])
    }).pipe(Effect.tagMetrics("test_retention", "long"), Effect.provide(Logger.remove(Logger.defaultLogger)))
  )

  it.effect("of an age of minutes runs each minute", () =>
    Effect.gen(function* () {
      const { build, close, state } = yield* setup
      yield* build(Duration.minutes(5))
      yield* TestClock.adjust("1 millis")
      expect(state.runs).toBe(1)
      yield* TestClock.adjust("3 minutes")
      expect([state.runs, failures("short")]).toEqual([4, 0])
      yield* close
    }).pipe(Effect.tagMetrics("test_retention", "short"))
  )
})
