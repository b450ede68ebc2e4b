/** A host may put something else in the place of each member of the session event log, and that is what runs. */
import { describe, expect, it } from "@effect/vitest"
import { Context, Duration, Effect, Layer, type Utils } from "effect"
import type { Scope } from "effect/Scope"
import * as Conversations from "../../src/Gateway/Conversations.ts"
import * as EventsInMemory from "../../src/Gateway/SessionEvents/Memory.ts"
import * as Retention from "../../src/Gateway/SessionEvents/Retention.ts"
import { SessionEvents } from "../../src/Gateway/SessionEvents.ts"
import { keyOf } from "../../src/Gateway/Sessions/Session/SessionRecords.ts"
import * as Memory from "../../src/Storage/Memory.ts"
import * as Sqlite from "../../src/Storage/Sqlite/SessionEvents.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { test } from "../Tests.ts"
import { alice, history, listen, makeSession } from "./Fixture.ts"

type Port = Context.Tag.Service<SessionEvents>

/** A gateway with one session, which has an environment. */
type Given = Effect.Effect.Success<ReturnType<typeof makeSession>> & { readonly events: Port }

/** What has a member run, in addition to what the gateway does by itself with a new session. */
type Use = (given: Given) => Generator<Utils.YieldWrap<Effect.Effect<unknown, unknown, Scope>>, void>

const nothing: Use = function* () {}

const get: Use = function* ({ id, sessions }) {
  yield* sessions.get(alice, id)
}

const say: Use = function* ({ id, sessions }) {
  const listener = yield* listen(sessions, id)
  yield* sessions.send(alice, id, "hello", "m1")
  yield* listener.until(({ type }) => type === "turn_completed")
  yield* sessions.send(alice, id, "hello", "m1")
  expect(yield* history(listener.subscription)).toEqual(listener.events)
}

/** Reads a conversation of many events, so that it is stored. The service forks that: it ends with the test. */
const converse: Use = function* ({ events, id, sessions, stored }) {
  const { subscription } = yield* listen(sessions, id)
  const { epoch, headSeq: after } = subscription
  const texts = Array.from({ length: 500 }, (_, index) => JSON.stringify({ type: "unknown", seq: after + 1 + index }))
  const session = keyOf(alice.tenant, id)
  yield* events.append({ session, epoch, after, timestamp: 0, texts, recoveryState: null })
  const context = yield* Layer.build(Layer.provide(Conversations.layer, Layer.succeedContext(stored)))
  yield* Context.get(context, Conversations.Conversations).read(subscription)
}

const list: Use = function* ({ sessions }) {
  yield* sessions.list(alice)
  yield* sessions.list(alice, { order: "activity" })
}

const remove: Use = function* ({ id, sessions }) {
  yield* sessions.get(alice, id)
  yield* sessions.remove(alice, id)
}

const members: { readonly [Member in Exclude<keyof Port, "isShared">]: Use } = {
  create: nothing,
  open: get,
  find: say,
  append: say,
  read: say,
  receipt: say,
  checkpoint: converse,
  saveCheckpoint: converse,
  *renewEpoch(given) {
    yield* given.sessions.start(alice, given.id)
    yield* given.stop
    yield* given.events.remove(keyOf(alice.tenant, given.id))
    yield* get({ ...given, ...(yield* given.start) })
  },
  configure: nothing,
  *configuration({ id, sessions }) {
    yield* sessions.start(alice, id)
  },
  summaries: list,
  // No session needs it: the report of the activity of the service reads it.
  *counts({ events }) {
    yield* events.counts(1)
  },
  active: list,
  remove,
  release: remove,
  abandoned: nothing,
  taken: nothing,
  unfinished: nothing,
  sessions: nothing,
  *trim({ stored }) {
    yield* Layer.build(Layer.provide(Retention.layer(Duration.minutes(1)), Layer.succeedContext(stored)))
  }
}

/** What only nodes that share a store do. */
const ofShared: ReadonlyArray<string> = ["create", "abandoned"]

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
        const { isShared: _, ...port } = yield* SessionEvents
        expect(Object.keys(port).sort()).toEqual(Object.keys(members).sort())
      }).pipe(Effect.provide(backend))
    )

    for (const [member, use] of Object.entries(members)) {
      test.scopedLive(`SessionEvents.${member}`, function* () {
        let runs = 0
        const counted = (port: Port): Port => {
          const replaced = port[member as keyof typeof members] as unknown
          const call = (...given: ReadonlyArray<unknown>) => {
            runs++
            return (replaced as (...given: ReadonlyArray<unknown>) => unknown)(...given)
          }
          const run = Effect.suspend(() => {
            runs++
            return replaced as Effect.Effect<unknown>
          })
          const isShared = port.isShared || ofShared.includes(member)
          return { ...port, isShared, [member]: typeof replaced === "function" ? call : run }
        }
        const layer = Layer.effect(SessionEvents, Effect.map(SessionEvents, counted))
        const stored = Layer.merge(Memory.layer, Layer.provide(layer, Layer.fresh(backend)))
        const given = yield* makeSession({ stored, create: { environment: { KEY: "value" } } })
        yield* Effect.gen(() => use({ ...given, events: Context.get(given.stored, SessionEvents) }))
        yield* Effect.repeat(Effect.sleep("1 millis"), { until: () => runs > 0 })
      })
    }
  })
}
