/** Subscriptions to sessions of other nodes, whose histories are read from the database. */

import { describe, expect, it } from "@effect/vitest"
import { Duration, Effect, Exit, FiberSet, Logger, Option, Scope, TestClock } from "effect"
import { type Command, NodeLink, type Reply } from "../../../src/Gateway/Forwarding/NodeLink.ts"
import { type History, SessionElsewhere, type SessionEvents } from "../../../src/Gateway/SessionEvents.ts"
import { alone, type Peer, SessionNodes } from "../../../src/Gateway/SessionNodes.ts"
import type { Entity } from "../../../src/Gateway/Sessions/Entity.ts"
import type { SessionRecord } from "../../../src/Gateway/Sessions/Session/SessionRecords.ts"
import * as LogSubscriptions from "../../../src/Gateway/Sessions/SessionSubscriptions.ts"
import type { Frame } from "../../../src/Gateway/Sessions.ts"
import { given } from "../../Given.ts"
import { alice, breathe, isDense } from "../Fixture.ts"

const id = "0".repeat(36)

const record: SessionRecord = {
  ...{ id, tenant: alice.tenant, epoch: "e1", agentType: "echo", title: "", titled: true, state: "inactive" },
  ...{ instanceId: null, createdAt: 0, updatedAt: 0, headSeq: 0, secretNames: [], configured: [] }
}

/** A history that another node writes, and its subscriptions here. */
const make = Effect.gen(function* () {
  const history = { epoch: "e1", head: 0, trimmedSeq: 0 }
  let failures = 0
  let wake = (): void => {}
  let watched = 0
  let owner = Option.none<Peer>()
  const followed: Array<string> = []
  const sent: Array<Command> = []
  const stored = (): History => ({
    epoch: history.epoch,
    headSeq: history.head,
    trimmedSeq: history.trimmedSeq,
    recoveryState: null
  })
  const events: Partial<typeof SessionEvents.Service> = {
    summaries: () => Effect.succeed([null]),
    find: () => Effect.sync(() => Option.some(stored())),
    read: (_, after, limit) =>
      Effect.sync(() => {
        if (failures > 0) {
          failures--
          throw new Error("a bug")
        }
        const length = Math.max(0, Math.min(limit, history.head - after))
        const events = Array.from({ length }, (_, index) => ({
          seq: after + 1 + index,
          text: `{"type":"text_delta","epoch":"${history.epoch}"}`
        }))
        return Option.some({ events, history: stored() })
      })
  }
  const run = yield* FiberSet.makeRuntime<never>()
  const { subscribe: subscribeToLog } = yield* LogSubscriptions.make({
    events: events as typeof SessionEvents.Service,
    records: { find: () => Effect.succeedSome(record) },
    settings: { idleTimeout: Duration.hours(1) },
    run: work => void run(work),
    cache: {
      use: () => new SessionElsewhere({ session: record.id }),
      peek: key => ({ follow: () => void followed.push(key) }) as Entity
    }
  }).pipe(
    Effect.provideService(SessionNodes, {
      ...alone,
      ownerOf: () => Effect.sync(() => owner),
      watch: (_, onChange) => {
        wake = onChange
        watched++
        return () => {
          watched--
        }
      }
    }),
    Effect.provideService(
      NodeLink,
      Option.some({
        transfer: () => Effect.dieMessage("not expected"),
        activity: () => Effect.dieMessage("not expected"),
        send: (_: unknown, command: Command) =>
          Effect.sync((): Reply => {
            sent.push(command)
            return { is: "not_owner" }
          })
      })
    )
  )
  const subscribe = (onFrames: (frames: ReadonlyArray<Frame>) => void = () => {}) =>
    Effect.gen(function* () {
      const seqs: Array<number> = []
      const state = { lost: 0 }
      const subscription = yield* subscribeToLog(alice, id, {
        onFrames: frames => {
          onFrames(frames)
          seqs.push(...frames.map(({ seq }) => seq))
        },
        onDeleted: () => {},
        onLost: () => {
          state.lost++
        }
      })
      return { subscription, seqs, state }
    })
  /** What another node does to the history, before this one learns of it. */
  const replace = (changes: Partial<typeof history>): void => {
    Object.assign(history, changes)
  }
  const change = (changes: Partial<typeof history>) =>
    Effect.zipRight(
      Effect.sync(() => {
        replace(changes)
        wake()
      }),
      Effect.repeatN(breathe, 3)
    )
  return {
    subscribe,
    followed,
    sent,
    watched: () => watched,
    moveTo: (to: Option.Option<Peer>): void => {
      owner = to
    },
    replace,
    change,
    failNext: () => {
      failures = 1
    }
  }
})

const test = given(it.scoped, () => make)

const quiet = Logger.remove(Logger.defaultLogger)

describe("LogSubscriptions", () => {
  test("a history that has lost events which subscribers were given ends their subscriptions", function* ({
    change,
    subscribe
  }) {
    yield* change({ head: 95 })
    const { seqs, state } = yield* subscribe()
    yield* change({ head: 100 })
    expect(seqs).toEqual([96, 97, 98, 99, 100])
    yield* change({ head: 95 })
    expect(state.lost).toBe(1)
    yield* change({ head: 101 })
    expect(seqs).toHaveLength(5)
    // The next one reads what there is now.
    const again = yield* subscribe()
    expect(again.subscription.headSeq).toBe(101)
    yield* change({ head: 102 })
    expect(again.seqs).toEqual([102])
  })

  test("more events than are read at once are published after one wake-up", function* ({ change, subscribe }) {
    const { seqs } = yield* subscribe()
    yield* change({ head: 600 })
    yield* Effect.repeat(breathe, { until: () => seqs.length === 600 })
    isDense(seqs)
  })

  test("missed events are read from the history that was subscribed to, and from no other", function* ({
    change,
    replace,
    subscribe
  }) {
    yield* change({ head: 10 })
    const { state, subscription } = yield* subscribe()
    expect((yield* subscription.read(0, 5)).frames.map(({ seq }) => seq)).toEqual([1, 2, 3, 4, 5])
    // Before the node learns of it by a wake-up.
    replace({ epoch: "e2", head: 20 })
    expect((yield* subscription.read(5, 5)).frames).toEqual([])
    expect(state.lost).toBe(1)
    const next = yield* subscribe()
    yield* change({ head: 21 })
    expect([next.seqs, next.state.lost]).toEqual([[21], 0])
  })

  it.scoped("a subscriber that throws is ended, and the others continue", () =>
    Effect.gen(function* () {
      const { change, subscribe } = yield* make
      const bad = yield* subscribe(() => {
        throw new Error("a bug")
      })
      const good = yield* subscribe()
      yield* change({ head: 1 })
      yield* change({ head: 2 })
      expect([bad.seqs, bad.state.lost]).toEqual([[], 1])
      expect([good.seqs, good.state.lost]).toEqual([[1, 2], 0])
    }).pipe(Effect.provide(quiet))
  )

  it.scoped("a read with a defect ends the subscriptions, and later ones are served", () =>
    Effect.gen(function* () {
      const { change, failNext, subscribe } = yield* make
      const first = yield* subscribe()
      yield* change({})
      failNext()
      yield* change({ head: 1 })
      expect(first.state.lost).toBe(1)
      const second = yield* subscribe()
      yield* change({ head: 2 })
      expect(second.seqs).toEqual([2])
    }).pipe(Effect.provide(quiet))
  )

  test("the owner of a session is notified of its subscribers here, at once and then regularly", function* ({
    change,
    moveTo,
    sent,
    subscribe,
    watched
  }) {
    moveTo(Option.some({ node: "other", address: "other:1" }))
    const subscription = yield* Scope.make()
    yield* Scope.extend(subscribe(), subscription)
    yield* change({})
    expect(sent).toMatchObject([
      { node: "other", hasSubscribers: true, request: { type: "get_session", sessionId: id } }
    ])
    yield* TestClock.adjust("10 minutes")
    expect(sent).toHaveLength(3)
    expect(watched()).toBe(1)
    yield* Scope.close(subscription, Exit.void)
    expect(watched()).toBe(0)
    yield* TestClock.adjust("10 minutes")
    expect(sent).toHaveLength(3)
  })

  test("a session that came to this node is followed by its subscribers here", function* ({
    change,
    followed,
    moveTo,
    subscribe
  }) {
    moveTo(Option.some({ node: "other", address: null }))
    yield* subscribe()
    yield* change({})
    yield* TestClock.adjust("10 minutes")
    expect(followed).toEqual([])
    moveTo(Option.none())
    yield* TestClock.adjust("15 minutes")
    expect(followed).toEqual(Array(3).fill(`${alice.tenant}/${id}`))
  })
})
