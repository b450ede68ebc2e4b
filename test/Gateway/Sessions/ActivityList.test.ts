/** Lists of sessions by their activity: no session is skipped, whatever happens between two pages. */
import { describe, expect, it } from "@effect/vitest"
import { Context, Duration, Effect, FastCheck as fc, Layer, Option, Runtime, TestClock } from "effect"
import { JsonText } from "../../../src/base/Json/JsonText.ts"
import { activityOf } from "../../../src/Gateway/SessionEvents/ActivityBits.ts"
import * as EventsInMemory from "../../../src/Gateway/SessionEvents/Memory.ts"
import { type Activity, SessionEvents } from "../../../src/Gateway/SessionEvents.ts"
import * as ActivityList from "../../../src/Gateway/Sessions/ActivityList.ts"
import * as Records from "../../../src/Gateway/Sessions/Session/SessionRecords.ts"
import type { ListSessions } from "../../../src/Gateway/Sessions.ts"
import { ChangeLog } from "../../../src/Kv/ChangeLog.ts"
import { Store } from "../../../src/Kv/Store.ts"
import * as Memory from "../../../src/Storage/Memory.ts"
import * as Sqlite from "../../../src/Storage/Sqlite/SessionEvents.ts"
import { emptiedNode } from "../../postgres/Databases.ts"
import { reasonToSkip } from "../../postgres/Server.ts"
import { times } from "../../Scale.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"
import { alice, bare, createSessions, heard, listen, recordsOf, storedWith } from "../Fixture.ts"

const minute = Duration.toMillis("1 minute")

/** Sessions 0 to 3 match each filter below at all times. */
const steady = 4
const count = 8

const filters = [{}, { running: true }, { waiting: false }, { running: true, failed: false }]

/** What happens between two pages: time passes, and a session becomes active, or is stored as such that much later. */
const step = fc.record({
  millis: fc.nat(20_000),
  session: fc.nat(count - 1),
  lateness: fc.nat(minute - 1),
  bits: fc.nat(7),
  isRemoved: fc.boolean()
})

type Step = typeof step extends fc.Arbitrary<infer S> ? S : never

/** Sessions of one tenant with their records. */
const makeTenant = (tenant: string) =>
  Effect.gen(function* () {
    const store = yield* Store
    const events = yield* SessionEvents
    const sessions: Array<{ readonly id: string; headSeq: number }> = []
    for (let index = 0; index < count; index++) {
      const record = yield* Records.initial(tenant, { agentType: "echo" }, [])
      const value = JsonText(Records.encodeRecord(record))
      const target = { namespace: Records.namespaceOf(tenant), key: record.id, value, expiresAt: null }
      yield* store.commit({ actor: "a", operations: [{ op: "set", ...target, precondition: { noneMatch: "any" } }] })
      yield* events.open(Records.keyOf(tenant, record.id), "e")
      sessions.push({ id: record.id, headSeq: 0 })
    }
    const activate = (index: number, activity: Activity, at: number) => {
      const session = sessions[index]!
      const after = session.headSeq++
      const target = { session: Records.keyOf(tenant, session.id), epoch: "e", after, timestamp: at, texts: ["{}"] }
      return events.append({ ...target, recoveryState: null, activity: { ...activity, at } })
    }
    const page = (limit: number, request: ListSessions) =>
      ActivityList.pageOf({ store, events }, tenant, limit, request)
    const remove = (index: number) => events.remove(Records.keyOf(tenant, sessions[index]!.id))
    return { ids: sessions.map(({ id }) => id), activate, page, remove }
  })

const working: Activity = { running: true, waiting: false, failed: false }

let tenants = 0

/** Pages through a list while steps are carried out, as many after each page. Returns the ids in their order. */
const listDuring = (limit: number, filter: ListSessions, pauses: ReadonlyArray<ReadonlyArray<Step>>) =>
  Effect.gen(function* () {
    const { activate, ids, page, remove } = yield* makeTenant(`tenant${tenants++}`)
    yield* TestClock.adjust("10 seconds")
    const gone = new Set<number>()
    for (let index = 0; index < steady; index++) {
      yield* activate(index, working, yield* TestClock.currentTimeMillis)
      yield* TestClock.adjust("15 seconds")
    }
    const listed: Array<string> = []
    let cursor: string | undefined
    for (let pages = 0; ; pages++) {
      const read = yield* page(limit, { ...filter, order: "activity", cursor })
      expect(read.records.length).toBeLessThanOrEqual(limit)
      listed.push(...read.records.map(({ id }) => id))
      if (read.cursor === undefined) break
      expect(pages).toBeLessThan(100)
      cursor = read.cursor
      for (const { bits, isRemoved, lateness, millis, session } of pauses[pages] ?? []) {
        yield* TestClock.adjust(millis)
        if (gone.has(session)) continue
        if (isRemoved && session >= steady) {
          gone.add(session)
          yield* remove(session)
          continue
        }
        const at = Math.max(0, (yield* TestClock.currentTimeMillis) - lateness)
        yield* activate(session, session < steady ? working : activityOf(bits), at)
      }
    }
    return { ids, listed }
  })

const suite = (name: string, layer: Layer.Layer<SessionEvents, unknown>) =>
  describe(`A list of sessions by activity in ${name}`, () => {
    it.effect("skips no session that is there throughout, whatever is active between two pages", () =>
      Effect.gen(function* () {
        const runtime = yield* Effect.runtime<SessionEvents | Store>()
        const property = fc.asyncProperty(
          fc.integer({ min: 1, max: 4 }),
          fc.constantFrom(...filters),
          fc.array(fc.array(step, { maxLength: 4 }), { maxLength: 12 }),
          async (limit, filter, pauses) => {
            const { ids, listed } = await Runtime.runPromise(runtime)(listDuring(limit, filter, pauses))
            for (const id of ids.slice(0, steady)) expect(listed).toContain(id)
          }
        )
        yield* Effect.promise(() => fc.assert(property, { numRuns: times(60) }))
      }).pipe(Effect.provide(Layer.merge(layer, Memory.layer)))
    )

    it.effect(
      "has each session once if none is active, the last active first, and those without events by their creation",
      () =>
        Effect.gen(function* () {
          const { activate, ids, page } = yield* makeTenant(`tenant${tenants++}`)
          yield* TestClock.adjust("1 second")
          for (const index of [2, 5, 0]) {
            yield* TestClock.adjust("1 second")
            yield* activate(index, working, yield* TestClock.currentTimeMillis)
          }
          yield* TestClock.adjust("2 minutes")
          const active = [ids[0]!, ids[5]!, ids[2]!]
          // These were created at the same time.
          const others = ids
            .filter(id => !active.includes(id))
            .sort()
            .reverse()
          for (const limit of [1, 2, 3, 8, 200]) {
            const listed: Array<string> = []
            let cursor: string | undefined
            do {
              const read = yield* page(limit, { cursor })
              listed.push(...read.records.map(({ id }) => id))
              cursor = read.cursor
            } while (cursor !== undefined)
            expect(listed).toEqual([...active, ...others])
          }
          // What fits into one page needs no other.
          expect(yield* page(8, {})).toHaveProperty("cursor", undefined)
          expect((yield* page(200, { running: true })).records.map(({ id }) => id)).toEqual(active)
        }).pipe(Effect.provide(Layer.merge(layer, Memory.layer)))
    )
  })

suite("memory", EventsInMemory.layer())

suite(
  "SQLite",
  Layer.unwrapScoped(Effect.map(temporaryDirectory, directory => Sqlite.layer({ directory, writer: "inline" })))
)

describe.skipIf(reasonToSkip !== undefined)(`PostgreSQL ${reasonToSkip ?? ""}`, () => {
  if (reasonToSkip === undefined) suite("PostgreSQL", emptiedNode({}))
  else it("passes the suite of lists", () => undefined)
})

describe("Requests for lists of sessions by activity", () => {
  bare("refuse a cursor of another order, filter or form, and filters without the order", function* ({ sessions }) {
    yield* createSessions(sessions, 3)
    const list = (request: ListSessions) => sessions.list(alice, { limit: 1, ...request })
    const byCreation = (yield* list({})).cursor!
    const byActivity = (yield* list({ order: "activity" })).cursor!
    const quiet = (yield* list({ order: "activity", running: false })).cursor!
    const refusals: ReadonlyArray<ListSessions> = [
      { order: "activity", cursor: byCreation },
      { cursor: byActivity },
      { order: "created", cursor: byActivity },
      { order: "activity", running: false, cursor: byActivity },
      { order: "activity", running: true, cursor: quiet },
      { order: "activity", running: false, failed: false, cursor: quiet },
      { order: "activity", cursor: `${byActivity}=` },
      { order: "activity", cursor: Buffer.from("\u0000{}").toString("base64url") },
      { order: "activity", cursor: Buffer.from('\u0000{"at":1e300}').toString("base64url") }
    ]
    for (const request of refusals) {
      expect(yield* Effect.flip(list(request))).toMatchObject({ _tag: "InvalidCursor" })
    }
    expect((yield* list({ order: "activity", running: false, cursor: quiet })).sessions).toHaveLength(1)
    for (const request of [{ waiting: true }, { order: "created", waiting: false }] as const) {
      const error = yield* Effect.flip(list(request))
      expect(error).toMatchObject({ _tag: "InvalidList", message: 'waiting: needs the order "activity"' })
    }
  })

  heard("show what a session does from its creation to a failure, also after a restart", function* (given) {
    const { id, kill, listener, sessions, start } = given
    const list = (from: typeof sessions, filter: ListSessions = {}) =>
      Effect.map(from.list(alice, { order: "activity", ...filter }), page => page.sessions)
    const idle = { running: false, waiting: false, failed: false }
    const [created] = yield* list(sessions)
    expect(created).toMatchObject({ id, ...idle })
    expect(created).not.toHaveProperty("lastEventAt")
    yield* sessions.send(alice, id, "/ask")
    yield* listener.until(({ type }) => type === "question_requested")
    expect(yield* list(sessions, { waiting: true })).toMatchObject([
      { id, running: true, waiting: true, failed: false }
    ])
    expect(yield* list(sessions, { running: false })).toEqual([])
    expect((yield* sessions.get(alice, id)).lastEventAt).toBe(listener.events.at(-1)!.timestamp)
    yield* kill
    const next = yield* start
    const recovered = yield* listen(next.sessions, id)
    expect(recovered.subscription.session).toMatchObject({ ...idle, failed: true, state: "inactive" })
    expect(yield* list(next.sessions, { failed: true })).toMatchObject([{ id, ...idle, failed: true }])
    yield* next.sessions.send(alice, id, "hello")
    yield* recovered.until(({ type }) => type === "turn_completed")
    expect(yield* list(next.sessions)).toMatchObject([{ id, ...idle }])
  })

  bare("find sessions whose histories were lost, and are as old as their records then", function* (given) {
    const { kill, sessions, start, stored } = given
    const ids = yield* createSessions(sessions, 3)
    const events = Context.get(stored, SessionEvents)
    yield* kill
    for (const id of ids.slice(0, 2)) yield* events.remove(Records.keyOf(alice.tenant, id))
    yield* events.create(Records.keyOf(alice.tenant, ids[0]!), "e", 1)
    const namespace = Records.namespaceOf(alice.tenant)
    const invalid = { op: "set", namespace, key: "f".repeat(36), value: JsonText("1"), expiresAt: null } as const
    yield* Context.get(stored, Store).commit({
      actor: "another",
      operations: [{ ...invalid, precondition: { noneMatch: "any" } }]
    })
    const next = yield* start
    const page = yield* next.sessions.list(alice, { order: "activity" })
    expect(page.sessions.map(({ id }) => id).at(-1)).toBe(ids[0])
    expect(new Set(page.sessions.map(({ id }) => id))).toEqual(new Set(ids))
    const { createdAt } = page.sessions.find(({ id }) => id === ids[1])!
    const newest = { before: { at: createdAt + 1, session: "" } }
    expect(yield* events.active({ tenant: alice.tenant, limit: 9, from: newest, filter: {} })).toContainEqual({
      at: createdAt,
      session: Records.keyOf(alice.tenant, ids[1]!)
    })
    expect(yield* events.find(Records.keyOf(alice.tenant, invalid.key))).toEqual(Option.none())
  })

  bare("leave out sessions without a record, and find the others behind them", function* ({ sessions, stored }) {
    const ids = yield* createSessions(sessions, 12)
    const kept = [ids[0]!, ids[1]!]
    const namespace = Records.namespaceOf(alice.tenant)
    yield* Context.get(stored, Store).commit({
      actor: "another",
      operations: ids.slice(2).map(key => ({ op: "delete", namespace, key, precondition: { match: "any" } }))
    })
    const found: Array<string> = []
    let cursor: string | undefined
    do {
      const page = yield* sessions.list(alice, { order: "activity", limit: 2, cursor })
      found.push(...page.sessions.map(({ id }) => id))
      cursor = page.cursor
    } while (cursor !== undefined)
    expect(new Set(found)).toEqual(new Set(kept))
  })

  bare("read few of the large values that other clients have written as records", function* ({ sessions, stored }) {
    const ids = yield* createSessions(sessions, 9)
    const large = JsonText(JSON.stringify("x".repeat(700_000)))
    const namespace = Records.namespaceOf(alice.tenant)
    for (const key of ids.slice(1)) {
      yield* Context.get(stored, Store).commit({
        actor: "another",
        operations: [{ op: "set", namespace, key, value: large, expiresAt: null, precondition: { match: "any" } }]
      })
    }
    const found: Array<string> = []
    let cursor: string | undefined
    do {
      const page = yield* sessions.list(alice, { order: "activity", cursor })
      found.push(...page.sessions.map(({ id }) => id))
      cursor = page.cursor
    } while (cursor !== undefined)
    expect(new Set(found)).toEqual(new Set(ids.slice(0, 1)))
  })
})

describe("A turn", () => {
  /** Whether each append of events has an activity. */
  const appends: Array<boolean> = []
  const recording = storedWith(({ append }) => ({
    append: request => {
      if (request.texts.length > 0) appends.push(request.activity !== undefined)
      return append(request)
    }
  }))

  bare(
    "stores the activity with its start and its end only, and changes no entry",
    { stored: recording },
    function* ({ sessions, stored }) {
      const { id } = yield* sessions.create(alice, { agentType: "echo", title: "given" })
      const listener = yield* listen(sessions, id)
      yield* sessions.start(alice, id)
      const log = Context.get(stored, ChangeLog)
      // The last change of the start, which is saved in the background.
      yield* Effect.repeat(recordsOf(stored), { until: ([record]) => record?.value.state === "active" })
      const lastSeq = yield* log.lastSeq
      appends.length = 0
      for (let turn = 0; turn < 10; turn++) {
        const turnId = yield* sessions.send(alice, id, "each of these words is a delta")
        yield* listener.until(event => event.type === "turn_completed" && event.turnId === turnId)
      }
      expect(appends.filter(isActive => isActive)).toHaveLength(20)
      expect(appends.length).toBeGreaterThan(20)
      expect(yield* log.lastSeq).toBe(lastSeq)
    }
  )
})
