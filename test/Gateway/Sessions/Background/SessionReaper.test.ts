/**
 * Sessions of an earlier run, and a platform that may be unavailable when the gateway restarts; the end of all sessions.
 */
import { describe, expect, it } from "@effect/vitest"
import { Cause, Context, Duration, Effect, Fiber, Layer, Logger, Option, TestClock } from "effect"
import * as Tracer from "../../../../src/base/Observability/Tracer.ts"
import { SessionEvents } from "../../../../src/Gateway/SessionEvents.ts"
import { shutDown } from "../../../../src/Gateway/Sessions/Background/SessionReaper.ts"
import type { Entity } from "../../../../src/Gateway/Sessions/Entity.ts"
import * as Registry from "../../../../src/Gateway/Sessions/Registry.ts"
import { namespaceOf } from "../../../../src/Gateway/Sessions/Session/SessionRecords.ts"
import * as Settings from "../../../../src/Gateway/Sessions/Settings.ts"
import { Sessions } from "../../../../src/Gateway/Sessions.ts"
import { Store, StoreUnavailable } from "../../../../src/Kv/Store.ts"
import { until } from "../../../../src/Simulator/Testing/Time.ts"
import { AgentPlatform } from "../../../../src/Upstream/AgentPlatform.ts"
import { Inference } from "../../../../src/Upstream/Inference.ts"
import { test } from "../../../Tests.ts"
import { alice, make, pass, timed, upstreams } from "../../Fixture.ts"

/** A gateway that was killed with active sessions, and another one on what it has stored. */
const restarted = (
  isUnavailable: boolean,
  change: (events: typeof SessionEvents.Service) => Partial<typeof SessionEvents.Service> = () => ({}),
  count = 1
) =>
  Effect.gen(function* () {
    const gateways = yield* make()
    const first = yield* gateways.start
    const started = yield* Effect.replicateEffect(
      Effect.gen(function* () {
        const { id } = yield* first.sessions.create(alice, { agentType: "echo" })
        return { id, instanceId: (yield* first.sessions.start(alice, id)).instanceId }
      }),
      count
    )
    const { id, instanceId } = started[0]!
    yield* first.kill
    const seen = { probes: 0, stopped: [] as string[] }
    const clients = yield* Layer.build(upstreams(gateways.simulator))
    const platform: typeof AgentPlatform.Service = {
      ...Context.get(clients, AgentPlatform),
      stop: stopped => Effect.sync(() => void seen.stopped.push(stopped)),
      probe: Effect.sync(() => {
        seen.probes++
        return Option.some({ status: isUnavailable ? "unhealthy" : "degraded", latencyMs: 0 })
      })
    }
    const events = Context.get(gateways.stored, SessionEvents)
    const context = yield* Layer.build(
      Registry.layer(Settings.defaults).pipe(
        Layer.provide(
          Layer.mergeAll(
            Layer.succeed(AgentPlatform, platform),
            Layer.succeed(Inference, Context.get(clients, Inference)),
            Layer.succeed(Store, Context.get(gateways.stored, Store)),
            Layer.succeed(SessionEvents, { ...events, ...change(events) })
          )
        ),
        Layer.provide(Tracer.layer)
      )
    )
    return { id, instanceId, started, seen, sessions: Context.get(context, Sessions) }
  })

describe("recovery of sessions", () => {
  test.scoped("stops instances at once if the platform answers its probe", function* () {
    const { id, instanceId, seen, sessions } = yield* restarted(false)
    yield* until(() => seen.stopped.length > 0)
    expect(seen).toEqual({ probes: 1, stopped: [instanceId] })
    expect((yield* sessions.get(alice, id)).state).toBe("inactive")
  })

  test.scoped("does not call an unavailable platform, and calls it later", function* () {
    const { id, instanceId, seen, sessions } = yield* restarted(true)
    yield* until(() => seen.probes === 1)
    // It waits for nothing itself.
    yield* pass("4 seconds", "1 second")
    expect((yield* sessions.get(alice, id)).state).toBe("inactive")
    expect(seen).toEqual({ probes: 1, stopped: [] })
    yield* pass("10 seconds", "1 second")
    expect(seen.stopped).toEqual([instanceId])
  })

  it.scoped("continues after failures and defects, and the log has their reasons", () => {
    const lines: Array<string> = []
    const logger = Logger.make<unknown, void>(({ annotations, cause, message }) => {
      lines.push([String(message), ...[...annotations].map(String), Cause.pretty(cause)].join(" "))
    })
    return Effect.gen(function* () {
      let [reads, opened] = [0, 0]
      const { instanceId, seen } = yield* restarted(false, ({ open, unfinished }) => ({
        unfinished: Effect.suspend(() => (reads++ === 0 ? new StoreUnavailable({ reason: "away" }) : unfinished)),
        open: (...session) =>
          Effect.suspend(() => (opened++ === 0 ? Effect.die(new Error("a planned defect")) : open(...session)))
      }))
      yield* pass("30 seconds", "1 second")
      yield* until(() => seen.stopped.length > 0)
      expect(seen.stopped).toEqual([instanceId])
      const log = lines.join("\n")
      expect(log).toMatch(/reading unfinished sessions fails until the store is back.*away/)
      expect(log).toMatch(/The recovery of a session failed with a defect.*a planned defect/)
    }).pipe(Effect.provide(Logger.replace(Logger.defaultLogger, logger)))
  })

  test.scoped("takes portions of the sessions of a node that is gone over at once, one after the other", function* () {
    const { seen, started } = yield* restarted(
      false,
      ({ unfinished }) => ({
        isShared: true,
        unfinished: Effect.succeed([]),
        abandoned: Effect.map(unfinished, all => all.slice(0, 2))
      }),
      5
    )
    // No time passes.
    yield* until(() => seen.stopped.length === 5)
    expect(seen.stopped.toSorted()).toEqual(started.map(({ instanceId }) => instanceId).sort())
  })

  it.scoped("tries sessions that cannot be taken over again after a pause", () =>
    Effect.gen(function* () {
      let reads = 0
      const { seen } = yield* restarted(
        false,
        ({ unfinished }) => ({
          isShared: true,
          unfinished: Effect.succeed([]),
          abandoned: Effect.zipLeft(
            unfinished,
            Effect.sync(() => reads++)
          ),
          open: () => new StoreUnavailable({ reason: "away" })
        }),
        2
      )
      for (let pauses = 1; pauses <= 3; pauses++) {
        yield* until(() => seen.probes === pauses)
        yield* pass("4 seconds", "1 second")
        expect(reads).toBe(pauses)
        yield* pass("1 second", "1 second")
      }
    }).pipe(Effect.provide(Logger.remove(Logger.defaultLogger)))
  )
})

describe("sessions whose entries are removed by another client", () => {
  timed(
    "are deleted: subscribers learn it, and instances are stopped",
    function* ({ id, sessions, simulator, stored }) {
      const other = yield* sessions.create(alice, { agentType: "echo" })
      yield* sessions.start(alice, id)
      yield* sessions.start(alice, other.id)
      let deletions = 0
      const subscriber = { onFrames: () => {}, onDeleted: () => void deletions++, onLost: () => {} }
      yield* sessions.subscribe(alice, id, subscriber)
      yield* Context.get(stored, Store).commit({
        actor: "mallory",
        operations: [{ op: "delete", namespace: namespaceOf("acme"), key: id }]
      })
      for (let seconds = 0; deletions === 0 && seconds < 60; seconds++) yield* pass("1 second", "1 second")
      expect(deletions).toBe(1)
      yield* simulator.awaitState(({ instances }) => instances.length === 1)
      expect(yield* Effect.flip(sessions.get(alice, id))).toMatchObject({ _tag: "SessionNotFound" })
      expect((yield* sessions.get(alice, other.id)).state).toBe("active")
      expect(yield* Context.get(stored, SessionEvents).find(`acme/${id}`)).toEqual(Option.none())
    }
  )
})

test.effect(
  "a session that cannot be stopped takes no time from the others, and not more than the limit",
  function* () {
    const done: Array<string> = []
    const note = (what: string) => Effect.sync(() => void done.push(what))
    const entity = (stop: Effect.Effect<void>) =>
      ({
        lifecycle: { needsShutdown: true, stop: () => stop },
        instances: { stopPending: () => Effect.void }
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
  }
)
