/** The end of all sessions of a gateway. */
import { expect, it } from "@effect/vitest"
import { Duration, Effect, Fiber, Option, TestClock } from "effect"
import type { Entity } from "../../../src/Gateway/Sessions/Entity.ts"
import { shutDown } from "../../../src/Gateway/Sessions/SessionReaper.ts"
import * as Settings from "../../../src/Gateway/Sessions/Settings.ts"

it.effect("a session that cannot be stopped takes no time from the others, and not more than the limit", () =>
  Effect.gen(function* () {
    const done: Array<string> = []
    const note = (what: string) => Effect.sync(() => void done.push(what))
    const entity = (stop: Effect.Effect<void>) =>
      ({
        lifecycle: { needsShutdown: true, stop: () => stop },
        cleanup: { run: () => Effect.void }
      }) as unknown as Entity
    const sessions = [entity(Effect.never), entity(note("one")), entity(note("other"))]
    const stopping = Duration.seconds(20)
    const clock = yield* Effect.clock
    const ending = yield* Effect.fork(
      shutDown(
        { monotonic: () => clock.unsafeCurrentTimeMillis(), settings: { ...Settings.defaults, stopping } },
        { all: () => sessions, peek: () => undefined },
        { flush: note("records") },
        { send: () => note("transfer") }
      )
    )
    yield* TestClock.adjust("1 second")
    expect(done).toEqual(["one", "other"])
    yield* TestClock.adjust(stopping)
    expect(Option.isSome(yield* Fiber.poll(ending))).toBe(true)
    expect(done).toEqual(["one", "other", "records", "transfer"])
  })
)
