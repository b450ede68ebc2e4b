/** A host may put something else in the place of each member of the session event log, and that is what runs. */
import { describe, expect, it } from "@effect/vitest"
import { Context, Duration, Effect, Layer, Option, type Utils } from "effect"
import type { Scope } from "effect/Scope"
import * as Conversations from "../../src/Gateway/Conversations.ts"
import * as EventsInMemory from "../../src/Gateway/SessionEvents/Memory.ts"
import * as Retention from "../../src/Gateway/SessionEvents/Retention.ts"
import { SessionEvents } from "../../src/Gateway/SessionEvents.ts"
import { keyOf } from "../../src/Gateway/Sessions/Session/SessionRecords.ts"
import type { Subscription } from "../../src/Gateway/Sessions.ts"
import * as Memory from "../../src/Storage/Memory.ts"
import * as Sqlite from "../../src/Storage/Sqlite/SessionEvents.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { test } from "../Tests.ts"
import { alice, history, listen, makeSession } from "./Fixture.ts"

type Port = Context.Tag.Service<SessionEvents>

/** A gateway with one session, which has an environment. */
type Given = Effect.Effect.Success<ReturnType<typeof makeSession>> & { readonly events: Port }

/** A replaced member, and a check by a session that it ran. */
interface Replacement {
  readonly replace: (port: Port) => Partial<Port>
  readonly check: (given: Given) => Effect.Effect<void, unknown, Scope>
}

type Check = (given: Given) => Generator<Utils.YieldWrap<Effect.Effect<unknown, unknown, Scope>>, void>

const replaced = (replace: Replacement["replace"], check: Check): Replacement => ({
  replace,
  check: given => Effect.gen(() => check(given))
})

let wrappedRuns = 0

/** Counts the runs of an effect. */
const counted = <A, E>(effect: Effect.Effect<A, E>): Effect.Effect<A, E> =>
  Effect.suspend(() => {
    wrappedRuns++
    return effect
  })

const untilRun = Effect.repeat(Effect.sleep("1 millis"), { until: () => wrappedRuns > 0 })

/** A member that a gateway runs by itself. */
const runs = (replace: Replacement["replace"]): Replacement => ({ replace, check: () => untilRun })

const epochOf = ({ id, sessions }: Given) => Effect.map(sessions.get(alice, id), ({ epoch }) => epoch)

const hasOtherEpoch: Check = function* (given) {
  expect(yield* epochOf(given)).toBe("wrapped")
}

const wrap = (text: string): string => text.replace("hello", "wrapped")

/** The service forks what it stores: it ends with the test. */
const readConversation = (stored: Context.Context<SessionEvents>, subscription: Subscription) =>
  Effect.flatMap(Layer.build(Layer.provide(Conversations.layer, Layer.succeedContext(stored))), context =>
    Context.get(context, Conversations.Conversations).read(subscription)
  )

/** A subscriber receives what was sent; what is read later is what was stored, or is read. */
const hasOtherContent: Check = function* ({ id, sessions }) {
  const listener = yield* listen(sessions, id)
  yield* sessions.send(alice, id, "hello")
  yield* listener.until(({ type }) => type === "turn_completed")
  const both = [listener.events, yield* history(listener.subscription)]
  const contents = both.flat().flatMap(event => (event.type === "turn_started" ? [event.content] : []))
  expect(contents).toEqual(["hello", "wrapped"])
}

const members: { readonly [Member in keyof Port]: Replacement } = {
  create: replaced(({ create }) => ({ isShared: true, create: session => create(session, "wrapped") }), hasOtherEpoch),
  open: replaced(
    ({ open }) => ({ open: (...given) => Effect.map(open(...given), one => ({ ...one, epoch: "wrapped" })) }),
    hasOtherEpoch
  ),
  find: replaced(
    ({ find }) => ({
      find: session => Effect.map(find(session), found => Option.map(found, one => ({ ...one, trimmedSeq: 77 })))
    }),
    function* ({ id, sessions }) {
      expect((yield* listen(sessions, id)).subscription.trimmedSeq).toBe(77)
    }
  ),
  append: replaced(
    ({ append }) => ({ append: one => append({ ...one, texts: one.texts.map(wrap) }) }),
    hasOtherContent
  ),
  read: replaced(
    ({ read }) => ({
      read: (...place) =>
        Effect.map(
          read(...place),
          Option.map(page => ({ ...page, events: page.events.map(one => ({ ...one, text: wrap(one.text) })) }))
        )
    }),
    hasOtherContent
  ),
  receipt: replaced(
    ({ receipt }) => ({
      receipt: (...id) => Effect.map(receipt(...id), found => Option.map(found, one => ({ ...one, turnId: "wrapped" })))
    }),
    function* ({ id, sessions }) {
      expect(yield* sessions.send(alice, id, "hello", "m1")).not.toBe("wrapped")
      expect(yield* sessions.send(alice, id, "hello", "m1")).toBe("wrapped")
    }
  ),
  checkpoint: replaced(
    ({ checkpoint }) => ({ checkpoint: session => counted(checkpoint(session)) }),
    function* ({ id, sessions, stored }) {
      const { subscription } = yield* listen(sessions, id)
      yield* readConversation(stored, subscription)
      expect(wrappedRuns).toBe(1)
    }
  ),
  saveCheckpoint: replaced(
    ({ saveCheckpoint }) => ({
      saveCheckpoint: (session, checkpoint) => counted(saveCheckpoint(session, checkpoint))
    }),
    function* ({ events, id, sessions, stored }) {
      const { subscription } = yield* listen(sessions, id)
      const { epoch, headSeq } = subscription
      const texts = Array.from({ length: 500 }, (_, index) =>
        JSON.stringify({ type: "unknown", seq: headSeq + 1 + index })
      )
      const append = {
        session: keyOf(alice.tenant, id),
        epoch,
        after: headSeq,
        timestamp: 0,
        texts,
        recoveryState: null
      }
      yield* events.append(append)
      yield* readConversation(stored, subscription)
      yield* untilRun
    }
  ),
  renewEpoch: replaced(
    ({ renewEpoch }) => ({ renewEpoch: session => renewEpoch(session, "wrapped") }),
    function* (given) {
      yield* given.sessions.start(alice, given.id)
      yield* given.stop
      yield* given.events.remove(keyOf(alice.tenant, given.id))
      expect(yield* epochOf({ ...given, ...(yield* given.start) })).toBe("wrapped")
    }
  ),
  configure: replaced(
    ({ configure }) => ({
      configure: (session, one) => configure(session, { ...one, environment: '{"WRAPPED":"yes"}' })
    }),
    function* ({ events, id }) {
      expect(yield* events.configuration(keyOf(alice.tenant, id))).toMatchObject({ environment: '{"WRAPPED":"yes"}' })
    }
  ),
  configuration: replaced(
    ({ configuration }) => ({
      configuration: session => Effect.map(configuration(session), found => ({ ...found, environment: null }))
    }),
    function* ({ id, sessions }) {
      expect(yield* Effect.flip(sessions.start(alice, id))).toMatchObject({ _tag: "SessionConflict" })
    }
  ),
  summaries: replaced(
    ({ summaries }) => ({
      summaries: sessions =>
        Effect.map(summaries(sessions), found => found.map(one => (one === null ? null : { ...one, headSeq: 77 })))
    }),
    function* ({ sessions }) {
      expect((yield* sessions.list(alice)).sessions).toMatchObject([{ headSeq: 77 }])
    }
  ),
  // No session needs it: the report of the activity of the service reads it.
  counts: { replace: () => ({}), check: () => Effect.void },
  active: replaced(
    () => ({ active: () => Effect.succeed([]) }),
    function* ({ sessions }) {
      expect((yield* sessions.list(alice)).sessions).toHaveLength(1)
      expect(yield* sessions.list(alice, { order: "activity" })).toEqual({ sessions: [] })
    }
  ),
  remove: replaced(
    ({ remove }) => ({ remove: session => counted(remove(session)) }),
    function* ({ id, sessions }) {
      yield* sessions.remove(alice, id)
      expect(wrappedRuns).toBe(1)
    }
  ),
  release: replaced(
    ({ release }) => ({ release: session => counted(release(session)) }),
    function* ({ id, sessions }) {
      yield* sessions.get(alice, id)
      yield* sessions.remove(alice, id)
      yield* untilRun
    }
  ),
  isShared: runs(({ abandoned }) => ({ isShared: true, abandoned: counted(abandoned) })),
  abandoned: runs(({ abandoned }) => ({ isShared: true, abandoned: counted(abandoned) })),
  taken: runs(({ taken }) => ({ taken: counted(taken) })),
  unfinished: runs(({ unfinished }) => ({ unfinished: counted(unfinished) })),
  sessions: runs(({ sessions }) => ({ sessions: (...page) => counted(sessions(...page)) })),
  trim: replaced(
    ({ trim }) => ({ trim: age => counted(trim(age)) }),
    function* ({ stored }) {
      yield* Effect.provide(untilRun, Layer.provide(Retention.layer(Duration.minutes(1)), Layer.succeedContext(stored)))
    }
  )
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
      test.scopedLive(`SessionEvents.${member}`, function* () {
        const layer = Layer.effect(
          SessionEvents,
          Effect.map(SessionEvents, port => ({ ...port, ...replace(port) }))
        )
        wrappedRuns = 0
        const stored = Layer.merge(Memory.layer, Layer.provide(layer, Layer.fresh(backend)))
        const given = yield* makeSession({ stored, create: { environment: { WRAPPED: "no" } } })
        yield* check({ ...given, events: Context.get(given.stored, SessionEvents) })
      })
    }
  })
}
