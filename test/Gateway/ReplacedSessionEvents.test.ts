/** A host may put something else in the place of each member of the session event log, and that is what runs. */
import { describe, expect, it } from "@effect/vitest"
import { Context, Duration, Effect, Layer, Option, TestContext } from "effect"
import * as EventsInMemory from "../../src/Gateway/SessionEvents/Memory.ts"
import * as Retention from "../../src/Gateway/SessionEvents/Retention.ts"
import { SessionEvents } from "../../src/Gateway/SessionEvents.ts"
import { keyOf } from "../../src/Gateway/Sessions/Session/SessionRecords.ts"
import * as Memory from "../../src/Storage/Memory.ts"
import * as Sqlite from "../../src/Storage/Sqlite/SessionEvents.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { alice, history, listen, make, pass } from "./Fixture.ts"

type Port = Context.Tag.Service<SessionEvents>
type Gateways = Effect.Effect.Success<ReturnType<typeof make>>

/** A replaced member, and a check by sessions that it ran. */
interface Replacement {
  readonly replace: (port: Port) => Partial<Port>
  readonly check: (gateways: Gateways) => ReturnType<typeof checked>
}

const checked = (body: Effect.Effect<void, unknown, Effect.Effect.Context<ReturnType<typeof listen>>>) => body

/** Replaces an effect. `wrapped` counts its runs. */
let wrappedRuns = 0

const counted = <A, E>(effect: Effect.Effect<A, E>): Effect.Effect<A, E> =>
  Effect.suspend(() => {
    wrappedRuns++
    return effect
  })

const untilRun = (before: number) => Effect.repeat(Effect.sleep("1 millis"), { until: () => wrappedRuns > before })

const configured = { agentType: "echo", environment: { WRAPPED: "no" } }

const members: { readonly [Member in keyof Port]: Replacement } = {
  create: {
    replace: ({ create }) => ({ isShared: true, create: session => create(session, "wrapped") }),
    check: ({ start }) =>
      Effect.gen(function* () {
        const { sessions } = yield* start
        const { id } = yield* sessions.create(alice, { agentType: "echo" })
        expect(yield* sessions.get(alice, id)).toMatchObject({ epoch: "wrapped" })
      })
  },
  open: {
    replace: ({ open }) => ({ open: session => open(session, "wrapped") }),
    check: ({ start }) =>
      Effect.gen(function* () {
        const { sessions } = yield* start
        const { id } = yield* sessions.create(alice, { agentType: "echo" })
        expect(yield* sessions.get(alice, id)).toMatchObject({ epoch: "wrapped" })
      })
  },
  find: {
    replace: ({ find }) => ({
      find: session =>
        Effect.map(
          find(session),
          Option.map(found => ({ ...found, trimmedSeq: 77 }))
        )
    }),
    check: ({ start }) =>
      Effect.gen(function* () {
        const { sessions } = yield* start
        const { id } = yield* sessions.create(alice, { agentType: "echo" })
        expect((yield* listen(sessions, id)).subscription.trimmedSeq).toBe(77)
      })
  },
  append: {
    replace: ({ append }) => ({
      append: one => append({ ...one, texts: one.texts.map(text => text.replace("hello", "wrapped")) })
    }),
    check: ({ start }) =>
      Effect.gen(function* () {
        const { sessions } = yield* start
        const { id } = yield* sessions.create(alice, { agentType: "echo" })
        const listener = yield* listen(sessions, id)
        yield* sessions.send(alice, id, "hello")
        yield* listener.until(({ type }) => type === "turn_completed")
        expect((yield* history(listener.subscription)).find(({ type }) => type === "turn_started")).toMatchObject({
          content: "wrapped"
        })
      })
  },
  read: {
    replace: ({ read }) => ({
      read: (session, after, limit) =>
        Effect.map(
          read(session, after, limit),
          Option.map(page => ({
            ...page,
            events: page.events.map(event => ({ ...event, text: event.text.replace("hello", "wrapped") }))
          }))
        )
    }),
    check: ({ start }) =>
      Effect.gen(function* () {
        const { sessions } = yield* start
        const { id } = yield* sessions.create(alice, { agentType: "echo" })
        const listener = yield* listen(sessions, id)
        yield* sessions.send(alice, id, "hello")
        yield* listener.until(({ type }) => type === "turn_completed")
        expect(listener.events.find(({ type }) => type === "turn_started")).toMatchObject({ content: "hello" })
        expect((yield* history(listener.subscription)).find(({ type }) => type === "turn_started")).toMatchObject({
          content: "wrapped"
        })
      })
  },
  receipt: {
    replace: ({ receipt }) => ({
      receipt: (session, id) =>
        Effect.map(
          receipt(session, id),
          Option.map(found => ({ ...found, turnId: "wrapped" }))
        )
    }),
    check: ({ start }) =>
      Effect.gen(function* () {
        const { sessions } = yield* start
        const { id } = yield* sessions.create(alice, { agentType: "echo" })
        expect(yield* sessions.send(alice, id, "hello", "m1")).not.toBe("wrapped")
        expect(yield* sessions.send(alice, id, "hello", "m1")).toBe("wrapped")
      })
  },
  renewEpoch: {
    replace: ({ renewEpoch }) => ({ renewEpoch: session => renewEpoch(session, "wrapped") }),
    check: ({ start, stored }) =>
      Effect.gen(function* () {
        const first = yield* start
        const { id } = yield* first.sessions.create(alice, { agentType: "echo" })
        yield* first.sessions.start(alice, id)
        yield* first.stop
        yield* Context.get(stored, SessionEvents).remove(keyOf(alice.tenant, id))
        const { sessions } = yield* start
        expect(yield* sessions.get(alice, id)).toMatchObject({ epoch: "wrapped" })
      })
  },
  configure: {
    replace: ({ configure }) => ({
      configure: (session, configuration) => configure(session, { ...configuration, environment: '{"WRAPPED":"yes"}' })
    }),
    check: ({ start, stored }) =>
      Effect.gen(function* () {
        const { sessions } = yield* start
        const events = Context.get(stored, SessionEvents)
        const { id } = yield* sessions.create(alice, configured)
        expect(yield* events.configuration(keyOf(alice.tenant, id))).toMatchObject({ environment: '{"WRAPPED":"yes"}' })
      })
  },
  configuration: {
    replace: ({ configuration }) => ({
      configuration: session => Effect.map(configuration(session), found => ({ ...found, environment: null }))
    }),
    check: ({ start }) =>
      Effect.gen(function* () {
        const { sessions } = yield* start
        const { id } = yield* sessions.create(alice, configured)
        expect(yield* Effect.flip(sessions.start(alice, id))).toMatchObject({ _tag: "SessionConflict" })
      })
  },
  summaries: {
    replace: ({ summaries }) => ({
      summaries: sessions =>
        Effect.map(summaries(sessions), found => found.map(one => (one === null ? null : { ...one, headSeq: 77 })))
    }),
    check: ({ start }) =>
      Effect.gen(function* () {
        const { sessions } = yield* start
        yield* sessions.create(alice, { agentType: "echo" })
        expect((yield* sessions.list(alice)).sessions).toMatchObject([{ headSeq: 77 }])
      })
  },
  remove: {
    replace: ({ remove }) => ({ remove: session => counted(remove(session)) }),
    check: ({ start }) =>
      Effect.gen(function* () {
        const { sessions } = yield* start
        const { id } = yield* sessions.create(alice, configured)
        const before = wrappedRuns
        yield* sessions.remove(alice, id)
        expect(wrappedRuns).toBe(before + 1)
      })
  },
  release: {
    replace: ({ release }) => ({ release: session => counted(release(session)) }),
    check: ({ start }) =>
      Effect.gen(function* () {
        const { sessions } = yield* start
        const { id } = yield* sessions.create(alice, { agentType: "echo" })
        const before = wrappedRuns
        yield* sessions.get(alice, id)
        yield* sessions.remove(alice, id)
        yield* untilRun(before)
      })
  },
  isShared: {
    replace: ({ abandoned }) => ({ isShared: true, abandoned: counted(abandoned) }),
    check: ({ start }) =>
      Effect.gen(function* () {
        const before = wrappedRuns
        yield* start
        yield* untilRun(before)
      })
  },
  abandoned: {
    replace: ({ abandoned }) => ({ isShared: true, abandoned: counted(abandoned) }),
    check: ({ start }) =>
      Effect.gen(function* () {
        const before = wrappedRuns
        yield* start
        yield* untilRun(before)
      })
  },
  taken: {
    replace: ({ taken }) => ({ taken: counted(taken) }),
    check: ({ start }) =>
      Effect.gen(function* () {
        const before = wrappedRuns
        const { sessions } = yield* start
        const { id } = yield* sessions.create(alice, { agentType: "echo" })
        yield* sessions.get(alice, id)
        yield* Effect.repeat(pass("1 second", "1 second"), { until: () => wrappedRuns > before })
      }).pipe(Effect.provide(TestContext.TestContext))
  },
  unfinished: {
    replace: ({ unfinished }) => ({ unfinished: counted(unfinished) }),
    check: ({ start }) =>
      Effect.gen(function* () {
        const before = wrappedRuns
        yield* start
        yield* untilRun(before)
      })
  },
  sessions: {
    replace: ({ sessions }) => ({ sessions: (...page) => counted(sessions(...page)) }),
    check: ({ start }) =>
      Effect.gen(function* () {
        const before = wrappedRuns
        yield* start
        yield* untilRun(before)
      })
  },
  trim: {
    replace: ({ trim }) => ({ trim: age => counted(trim(age)) }),
    check: ({ stored }) => {
      const before = wrappedRuns
      const layer = Layer.provide(Retention.layer(Duration.minutes(1)), Layer.succeedContext(stored))
      return Effect.provide(untilRun(before), layer)
    }
  }
}

const backends: ReadonlyArray<readonly [string, Layer.Layer<SessionEvents, unknown>]> = [
  ["memory", EventsInMemory.layer()],
  [
    "sqlite",
    Layer.unwrapScoped(Effect.map(temporaryDirectory, directory => Sqlite.layer({ directory, writer: "inline" })))
  ]
]

for (const [name, backend] of backends) {
  describe(`over ${name}, a replaced member of the session event log is used:`, () => {
    it.scopedLive("each member is tested", () =>
      Effect.gen(function* () {
        expect(Object.keys(yield* SessionEvents).sort()).toEqual(Object.keys(members).sort())
      }).pipe(Effect.provide(backend))
    )

    for (const [member, { check, replace }] of Object.entries(members)) {
      it.scopedLive(`SessionEvents.${member}`, () =>
        Effect.gen(function* () {
          const replaced = Layer.effect(
            SessionEvents,
            Effect.map(SessionEvents, port => ({ ...port, ...replace(port) }))
          )
          const stored = Layer.merge(Memory.layer, Layer.provide(replaced, Layer.fresh(backend)))
          yield* check(yield* make({ stored }))
        })
      )
    }
  })
}
