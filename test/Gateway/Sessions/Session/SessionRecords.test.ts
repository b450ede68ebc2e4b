/** The records of sessions in the key-value store: how many there may be, and that each of them is saved. */

import { describe, expect, it } from "@effect/vitest"
import { Context, Effect, Exit, Fiber, Layer, Logger, LogLevel, Option, Redacted, Schedule } from "effect"
import { JsonText } from "../../../../src/base/Json/JsonText.ts"
import { yieldToEventLoop } from "../../../../src/base/Time/EventLoop.ts"
import {
  encodeRecord,
  namespaceOf,
  type Recorded,
  type SessionRecord,
  SessionRecords,
  sessionId
} from "../../../../src/Gateway/Sessions/Session/SessionRecords.ts"
import { Store, StoreUnavailable } from "../../../../src/Kv/Store.ts"
import * as Memory from "../../../../src/Storage/Memory.ts"
import { identifierChars } from "../../../../src/Upstream/PlatformEvent.ts"
import { test } from "../../../Tests.ts"
import { alice, bare, createSessions, make, makeSession, mallory, storedWith } from "../../Fixture.ts"

type StoreService = Context.Tag.Service<Store>

/** What is stored, with another commit. */
const withCommit = (change: (commit: StoreService["commit"]) => StoreService["commit"]) =>
  storedWith(
    () => ({}),
    ({ commit }) => ({ commit: change(commit) })
  )

const recordOf = (stored: Context.Context<Store>, id: string) =>
  Effect.flatMap(
    Context.get(stored, Store).get(namespaceOf("acme"), id),
    Effect.map(({ value }) => JSON.parse(value))
  )

/** Waits until a record says so. */
const untilState = (stored: Context.Context<Store>, id: string, state: string) =>
  recordOf(stored, id).pipe(
    Effect.filterOrFail(record => record.state === state),
    Effect.retry({ schedule: Schedule.spaced("5 millis") })
  )

describe("Records of sessions", () => {
  test.scopedLive("are saved with the longest id that the platform may give an instance", function* () {
    const long = (id: string) => id.padEnd(identifierChars, "x")
    const short = (id: string) => id.replace(/x+$/, "")
    const { stored, sessions, id } = yield* makeSession({
      platform: platform => ({
        ...platform,
        create: request => Effect.map(platform.create(request), long),
        stop: (id, options) => platform.stop(short(id), options),
        connect: (id, options) => platform.connect(short(id), options)
      })
    })
    const { instanceId } = yield* sessions.start(alice, id)
    expect(instanceId).toHaveLength(identifierChars)
    expect(yield* untilState(stored, id, "active")).toMatchObject({ instanceId })
    expect(yield* sessions.list(alice)).toMatchObject({ sessions: [{ id, instanceId }] })
  })

  test.scopedLive("are saved although one of them fails", function* () {
    let spoilt = ""
    const { start, stored } = yield* make({
      stored: withCommit(commit => write => {
        if (write.actor === "gateway" && write.operations[0]?.key === spoilt) throw new Error("cannot be encoded")
        return commit(write)
      })
    })
    const { sessions } = yield* start
    const ids = yield* createSessions(sessions, 3)
    spoilt = ids[0]!
    yield* Effect.forEach(ids, id => sessions.start(alice, id))
    yield* untilState(stored, ids[1]!, "active")
    yield* untilState(stored, ids[2]!, "active")
    expect(yield* recordOf(stored, spoilt)).toMatchObject({ state: "inactive" })
    const saved = spoilt
    spoilt = ""
    yield* sessions.stop(alice, saved)
    yield* sessions.start(alice, saved)
    yield* untilState(stored, saved, "active")
  })

  test.scopedLive("keep their sessions in memory until they are saved", function* () {
    const [isSaving, isOpen] = [yield* Effect.makeLatch(false), yield* Effect.makeLatch(false)]
    const { stored, sessions, id } = yield* makeSession({
      settings: { inMemory: 1 },
      stored: withCommit(commit => write => {
        const [operation] = write.operations
        const isLast = operation?.op === "set" && operation.value.includes('"state":"inactive"')
        if (write.actor !== "gateway" || !isLast) return commit(write)
        return Effect.zipRight(Effect.zipRight(isSaving.open, isOpen.await), commit(write))
      })
    })
    const other = yield* sessions.create(alice, { agentType: "echo" })
    yield* sessions.start(alice, id)
    yield* untilState(stored, id, "active")
    const stopped = yield* sessions.stop(alice, id)
    yield* isSaving.await
    const found = yield* Effect.fork(Effect.zipRight(sessions.get(alice, other.id), sessions.get(alice, id)))
    // All is in memory: after so many rounds of the event loop it waits for the record, or is wrongly done.
    yield* Effect.repeatN(yieldToEventLoop, 100)
    expect(yield* Fiber.poll(found)).toEqual(Option.none())
    yield* isOpen.open
    expect(yield* Fiber.join(found)).toEqual(stopped)
  })

  bare(
    "do not exceed the limit with concurrent creations",
    {
      settings: { perTenant: 5 },
      stored: withCommit(commit => write => Effect.zipRight(Effect.yieldNow(), commit(write)))
    },
    function* ({ sessions, stored }) {
      const exits = yield* Effect.forEach(
        Array.from({ length: 60 }),
        () => Effect.exit(sessions.create(alice, { agentType: "echo" })),
        { concurrency: "unbounded" }
      )
      const created = exits.flatMap(exit => (Exit.isSuccess(exit) ? [exit.value.id] : []))
      expect(created).toHaveLength(5)
      const { entries } = yield* Context.get(stored, Store).list({
        namespace: namespaceOf("acme"),
        prefix: "",
        after: "",
        limit: 100
      })
      expect(entries).toHaveLength(5)
      // Each one that is deleted makes room for one, and another tenant has room of its own.
      yield* sessions.create(mallory, { agentType: "echo" })
      yield* sessions.remove(alice, created[0]!)
      yield* sessions.create(alice, { agentType: "echo" })
      expect(yield* Effect.flip(sessions.create(alice, { agentType: "echo" }))).toMatchObject({
        _tag: "SessionTooLarge",
        message: "The tenant has 5 sessions; the limit is 5"
      })
    }
  )

  test.scopedLive("that could not be created do not count", function* () {
    let isRefused = true
    const { start } = yield* make({
      settings: { perTenant: 1 },
      stored: withCommit(
        commit => write =>
          isRefused
            ? Effect.zipRight(
                Effect.yieldNow(),
                commit({
                  ...write,
                  operations: write.operations.map(op => ({ ...op, precondition: { match: "any" as const } }))
                })
              )
            : commit(write)
      )
    })
    const { sessions } = yield* start
    for (let tries = 0; tries < 3; tries++) {
      expect(yield* Effect.flip(sessions.create(alice, { agentType: "echo" }))).toMatchObject({
        _tag: "SessionConflict"
      })
    }
    isRefused = false
    yield* sessions.create(alice, { agentType: "echo" })
  })

  for (const who of ["the session's owner", "another client"]) {
    it.scopedLive(
      `that ${who} removed while they were being saved are ${who === "another client" ? "" : "not "}missed`,
      () => {
        const warnings: Array<string> = []
        const logger = Logger.make(({ logLevel, message }) => {
          if (logLevel === LogLevel.Warning) warnings.push(String(message))
        })
        return Effect.gen(function* () {
          const [isSaving, isRemoved] = [yield* Effect.makeLatch(false), yield* Effect.makeLatch(false)]
          let saves = 0
          const { stored, sessions, id } = yield* makeSession({
            stored: withCommit(commit => write => {
              if (write.operations[0]?.op === "delete") return Effect.zipLeft(commit(write), isRemoved.open)
              if (write.actor !== "gateway") return commit(write)
              const saved = Effect.ensuring(
                commit(write),
                Effect.sync(() => saves++)
              )
              return Effect.zipRight(Effect.zipRight(isSaving.open, isRemoved.await), saved)
            })
          })
          yield* sessions.start(alice, id)
          yield* isSaving.await
          yield* who === "another client"
            ? Context.get(stored, Store).commit({
                actor: "mallory",
                operations: [{ op: "delete", namespace: namespaceOf("acme"), key: id }]
              })
            : sessions.remove(alice, id)
          yield* Effect.repeat(Effect.sleep("5 millis"), { until: () => saves > 0 })
          const missed = warnings.filter(text => text.includes("removed by another client"))
          expect(missed.length > 0).toBe(who === "another client")
        }).pipe(Effect.provide(Logger.replace(Logger.defaultLogger, logger)))
      }
    )
  }
})

describe("Lists of sessions", () => {
  const pageSizes = { reads: [] as Array<number> }
  const counting = storedWith(
    () => ({}),
    ({ list }) => ({
      list: query => Effect.tap(list(query), ({ entries }) => pageSizes.reads.push(entries.length))
    })
  )

  bare(
    "have each session once, newest first, skip other entries, and read no more than they return",
    { stored: counting },
    function* ({ sessions, stored }) {
      const created = yield* Effect.forEach(Array.from({ length: 450 }), () =>
        sessions.create(alice, { agentType: "echo", secrets: { TOKEN: Redacted.make("x") } })
      )
      const foreign = (key: string, value: string) => ({
        ...{ op: "set" as const, namespace: namespaceOf("acme"), key, value: JsonText(value), expiresAt: null }
      })
      const other = created[7]!
      yield* Context.get(stored, Store).commit({
        actor: "another",
        operations: [
          ...Array.from({ length: 50 }, (_, index) => foreign(`${other.id}${index}`, '"no session"')),
          foreign(other.id.replace(/.$/, "x"), "null"),
          foreign("f".repeat(36), JSON.stringify({ ...other, id: "f".repeat(36), tenant: "evil" }))
        ]
      })
      const newestFirst = created
        .toSorted((a, b) => b.createdAt - a.createdAt || (a.id < b.id ? 1 : -1))
        .map(({ id }) => id)
      for (const limit of [undefined, 200, 130]) {
        const found: Array<string> = []
        let cursor: string | undefined
        do {
          pageSizes.reads = []
          const page = yield* sessions.list(alice, { limit, cursor })
          expect(page.sessions.length).toBeLessThanOrEqual(limit ?? 200)
          expect(pageSizes.reads.length).toBeLessThanOrEqual(4)
          for (const size of pageSizes.reads) expect(size).toBeLessThanOrEqual(limit ?? 200)
          found.push(...page.sessions.map(({ id }) => id))
          cursor = page.cursor
        } while (cursor !== undefined)
        expect(found).toEqual(newestFirst)
      }
    }
  )

  test.scopedLive("limit a page to a mebibyte", function* () {
    const { start } = yield* make()
    const first = yield* start
    // Each record names secrets of 60 kB altogether, which are lost with the process.
    const names = Array.from({ length: 240 }, (_, index) => `S${index}_`.padEnd(250, "x"))
    const secrets = Object.fromEntries(names.map(name => [name, Redacted.make("")]))
    for (let n = 0; n < 30; n++) yield* first.sessions.create(alice, { agentType: "echo", secrets })
    yield* first.stop
    const { sessions } = yield* start
    const page = yield* sessions.list(alice)
    expect(JSON.stringify(page).length).toBeLessThan(1.2 * 1024 * 1024)
    expect(page.sessions[0]?.missingSecrets).toHaveLength(240)
    const rest = yield* sessions.list(alice, { cursor: page.cursor! })
    expect(page.sessions.length + rest.sessions.length).toBe(30)
    expect(rest).not.toHaveProperty("cursor")
  })

  for (const isOwner of [true, false]) {
    const then = isOwner ? "are saved over it by the node that owns the session" : "are left as another node wrote them"
    test.scopedLive(`that are shared, and were changed in the meantime, ${then}`, function* () {
      const stored = yield* Layer.build(Memory.layer)
      const store = Context.get(stored, Store)
      const records = yield* SessionRecords.make(store, true)
      const id = yield* sessionId
      const record: SessionRecord = {
        ...{ id, tenant: "acme", epoch: "e", agentType: "echo", title: "first", titled: true, state: "inactive" },
        ...{ instanceId: null, createdAt: 0, updatedAt: 0, headSeq: 0, secretNames: [], configured: [] }
      }
      yield* records.create(encodeRecord(record), record, "tester")
      let title = "second"
      let isTaken = false
      let asked = 0
      const session: Recorded = {
        key: `acme/${id}`,
        record,
        toRecord: () => ({ ...record, title }),
        isDeleting: false,
        isDeleted: false,
        isGivenUp: false,
        confirm: Effect.suspend(() => {
          asked++
          return isTaken ? new StoreUnavailable({ reason: "taken" }) : Effect.void
        })
      }
      records.save(session)
      yield* records.flush
      expect((yield* recordOf(stored, id)).title).toBe("second")
      // What is known to be its own is not asked for again.
      title = "third"
      records.save(session)
      yield* records.flush
      expect(asked).toBe(1)
      const value = JsonText(encodeRecord({ ...record, title: "foreign" }))
      const foreign = { op: "set", namespace: namespaceOf("acme"), key: id, value, expiresAt: null } as const
      yield* store.commit({ operations: [foreign], actor: "other" })
      isTaken = !isOwner
      title = "fourth"
      records.save(session)
      // One attempt finds the version changed, the next one asks.
      yield* Effect.repeat(records.flush, { until: () => asked > 1 && (!isOwner || !records.isDirty(session)) })
      expect((yield* recordOf(stored, id)).title).toBe(isOwner ? "fourth" : "foreign")
      expect(records.isDirty(session)).toBe(!isOwner)
    })
  }
})
