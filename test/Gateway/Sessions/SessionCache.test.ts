/** How sessions come into memory. */

import { describe, expect, it } from "@effect/vitest"
import { Array as Arr, Effect, Exit, Fiber, Scope, TestClock } from "effect"
import { FairPool } from "../../../src/Gateway/FairPool.ts"
import * as Memory from "../../../src/Gateway/SessionEvents/Memory.ts"
import { SessionEvents } from "../../../src/Gateway/SessionEvents.ts"
import { alone } from "../../../src/Gateway/SessionNodes.ts"
import type { Entity } from "../../../src/Gateway/Sessions/Entity.ts"
import { SecretPool } from "../../../src/Gateway/Sessions/Session/SecretPool.ts"
import type { Shared } from "../../../src/Gateway/Sessions/Session/SessionCore.ts"
import type { SessionRecord, SessionRecords } from "../../../src/Gateway/Sessions/Session/SessionRecords.ts"
import { SessionCache } from "../../../src/Gateway/Sessions/SessionCache.ts"
import { defaults } from "../../../src/Gateway/Sessions/Settings.ts"
import type { Caller } from "../../../src/Gateway/Sessions.ts"
import { breathe } from "../../../src/Simulator/Testing/Time.ts"
import { alice, bare, mallory, timedBare } from "../Fixture.ts"

const idOf = (number: number): string => `${number}`.padStart(36, "0")

const recordOf = (id: string): SessionRecord => ({
  id,
  tenant: "t",
  agentType: "coder",
  title: "",
  state: "inactive",
  instanceId: null,
  createdAt: 0,
  updatedAt: 0,
  epoch: "e",
  headSeq: 0,
  configured: [],
  secretNames: [],
  titled: false
})

/** Uses sessions until it is interrupted. */
const use = (entities: ReadonlyArray<Entity>) =>
  Effect.zipLeft(
    Effect.fork(entities.reduce<Effect.Effect<never>>((inner, entity) => entity.use(inner), Effect.never)),
    Effect.yieldNow()
  )

/** Sessions of which only two fit into memory, with records that are written while a gate is open. */
const makeIn = (scope: Scope.Scope) =>
  Effect.gen(function* () {
    const gate = yield* Effect.makeLatch(true)
    const records: Pick<SessionRecords, keyof SessionRecords> = {
      find: (_tenant, id) => Effect.succeedSome(recordOf(id)),
      missing: () => Effect.succeed([]),
      create: () => Effect.void,
      remove: () => Effect.succeed(true),
      save: () => {},
      isDirty: () => false,
      flush: gate.await
    }
    const shared: Shared = {
      records,
      secrets: new SecretPool(1024, () => undefined),
      settings: { ...defaults, inMemory: 2 },
      events: yield* SessionEvents,
      scope,
      cleanups: new FairPool({ name: "turns", capacity: 1 }),
      activations: new FairPool({ name: "activations", capacity: 1 }),
      paced: (_tenant, _size, work) => work,
      traceId: Effect.succeed("0".repeat(32)),
      malformedTypes: new Set(),
      tags: [],
      platform: undefined as never,
      now: () => 0,
      monotonic: () => 0,
      generateTitle: () => {},
      run: () => {},
      isClosing: () => false
    }
    return { gate, loaded: new SessionCache(shared, records, alone, () => {}) }
  })

const make = Effect.flatMap(Effect.scope, makeIn)

describe("Sessions in memory", () => {
  it.effect("a load that waits for room ends with the gateway", () =>
    Effect.gen(function* () {
      const scope = yield* Scope.make()
      const { gate, loaded } = yield* makeIn(scope)
      const others = yield* Effect.forEach([1, 2], number => loaded.get("t", idOf(number)))
      yield* use(others)
      // Records that cannot be written.
      yield* gate.close
      const waiting = yield* Effect.fork(Effect.exit(loaded.get("t", idOf(3))))
      yield* breathe
      yield* Scope.close(scope, Exit.void)
      expect(Exit.isInterrupted(yield* Fiber.join(waiting))).toBe(true)
    }).pipe(Effect.provide(Memory.layer()))
  )

  it.scoped("a session that several callers wait for is loaded once", () =>
    Effect.gen(function* () {
      const { gate, loaded } = yield* make
      const others = yield* Effect.forEach([1, 2], number => loaded.get("t", idOf(number)))
      const using = yield* use(others)
      yield* gate.close
      const fibers = yield* Effect.forEach([1, 2, 3], () => Effect.fork(loaded.get("t", idOf(3))))
      yield* Effect.yieldNow()
      yield* Fiber.interrupt(using)
      yield* gate.open
      const entities = yield* Effect.forEach(fibers, Fiber.join)
      expect(new Set(entities).size).toBe(1)
      expect(loaded.peek(`t/${idOf(3)}`)).toBe(entities[0])
      expect([...loaded.all()]).toHaveLength(2)
    }).pipe(Effect.provide(Memory.layer()))
  )

  it.scoped("an interrupted caller does not affect others, and no slot is leaked", () =>
    Effect.gen(function* () {
      const { gate, loaded } = yield* make
      const others = yield* Effect.forEach([1, 2], number => loaded.get("t", idOf(number)))
      const using = yield* use(others)
      yield* gate.close
      const left = yield* Effect.fork(loaded.get("t", idOf(3)))
      yield* Effect.yieldNow()
      const waiting = yield* Effect.fork(loaded.get("t", idOf(3)))
      yield* Fiber.interrupt(left)
      yield* gate.open
      expect(yield* Effect.flip(Fiber.join(waiting))).toMatchObject({ _tag: "SessionsBusy" })
      yield* Fiber.interrupt(using)
      yield* loaded.get("t", idOf(3))
      yield* loaded.get("t", idOf(4))
      expect([...loaded.all()].map(({ record }) => record.id)).toEqual([idOf(3), idOf(4)])
    }).pipe(Effect.provide(Memory.layer()))
  )
})

describe("Lists of sessions", () => {
  bare("of one tenant do not delay another tenant's", function* ({ sessions }) {
    yield* sessions.create(alice, { agentType: "echo" })
    yield* sessions.create(mallory, { agentType: "echo" })
    const asked = 200
    let begun = 0
    let answered = 0
    const one = Effect.gen(function* () {
      begun++
      yield* sessions.list(mallory)
      answered++
    })
    const storm = yield* Effect.fork(
      Effect.forEach(Arr.range(1, asked), () => one, { concurrency: "unbounded", discard: true })
    )
    while (begun < asked) yield* Effect.yieldNow()
    expect((yield* sessions.list(alice)).sessions).toHaveLength(1)
    expect(answered).toBeLessThan(20)
    yield* Fiber.join(storm)
    expect(answered).toBe(asked)
  })
})

describe("Sessions in memory, of several tenants", () => {
  timedBare(
    "are not stopped for another tenant's session while another node has subscribers to them",
    { settings: { inMemory: 3 } },
    function* ({ sessions }) {
      const begin = (caller: Caller) =>
        Effect.gen(function* () {
          const { id } = yield* sessions.create(caller, { agentType: "echo" })
          return (yield* sessions.start(caller, id)).id
        })
      const activeOf = (caller: Caller) =>
        Effect.map(sessions.list(caller), page =>
          page.sessions.filter(({ state }) => state === "active").map(({ id }) => id)
        )
      const followed = yield* begin(mallory)
      const subscribed = { ...mallory, hasSubscribers: true }
      yield* sessions.get(subscribed, followed)
      yield* begin(mallory)
      const last = yield* begin(mallory)
      yield* begin(alice)
      expect(new Set(yield* activeOf(mallory))).toEqual(new Set([last, followed]))
      // The other node has said nothing for some time.
      yield* TestClock.adjust("10 minutes")
      yield* begin({ tenant: "third", actor: "bob" })
      expect(yield* activeOf(mallory)).toEqual([last])
    }
  )
})
