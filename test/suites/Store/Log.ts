import { expect } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import * as TestClock from "effect/TestClock"
import { ChangeLog } from "../../../src/Kv/ChangeLog.ts"
import { Store } from "../../../src/Kv/Store.ts"
import {
  type Check,
  expireAll,
  feed,
  lastSeq,
  mebibyte,
  put,
  read,
  remove,
  set,
  start,
  trimAll,
  write
} from "./Fixture.ts"

const namespace = "tenant:t1/log"

/** The change log: reading, tenants, retention and waiting. */
export const log = (check: Check) => {
  check("every page and every list has the epoch of the log, which does not change", function* () {
    const log = yield* ChangeLog
    const store = yield* Store
    const page = (after: number) => log.read({ after, limit: 1, tenant: "" })
    const { epoch } = yield* page(0)
    // Fit for headers, for ids of events and for queries.
    expect(epoch).toMatch(/^[A-Za-z0-9._-]{1,64}$/)
    for (let index = 0; index < 3; index++) {
      yield* put(namespace, `k${index}`, index)
      yield* TestClock.adjust("1 hour")
    }
    expect(yield* trimAll("1 minute")).toBe(2)
    expect(yield* Effect.flip(page(0))).toMatchObject({ _tag: "HistoryTrimmed", epoch })
    for (const after of [2, 3, 100]) expect(yield* page(after)).toMatchObject({ epoch })
    for (const space of [namespace, "empty"]) {
      expect(yield* store.list({ namespace: space, prefix: "", after: "", limit: 1 })).toMatchObject({ epoch })
      expect(yield* store.listAll({ namespace: space, prefix: "" })).toMatchObject({ epoch })
    }
  })

  check("a reader of a tenant, of a namespace, or of a part of it, sees its own records", function* () {
    const spaces = [
      "a",
      "tenant:a",
      "tenant:a/x",
      "tenant:a/xy",
      "tenant:ab/x",
      "tenant:A/x",
      "tenant:/x",
      "x/tenant:a/"
    ]
    spaces.push("A", 'a","key":"', "a b", "é😀")
    const names = ["k", "k/1", "k/10", "k/2", "K", "%", "k_", "\uffff", "😀", "😀a", '","value":']
    for (const name of names) for (const space of spaces) yield* put(space, name, 1)
    yield* remove("tenant:a/x", "k/1")
    const whole = yield* feed()
    const isOf = (tenant: string, name: string) =>
      tenant === "" || name === `tenant:${tenant}` || name.startsWith(`tenant:${tenant}/`)
    for (const [tenant, prefixes] of [
      ["", [undefined, "", ...names, "k/", "nothing", "\ud83d"]],
      ["a", [undefined, "k/"]],
      ["ab", [undefined]],
      ["b", [undefined]]
    ] as const) {
      const own = whole.filter(record => isOf(tenant, record.namespace))
      for (const limit of [20, 1000]) expect([tenant, yield* feed(0, limit, tenant)]).toEqual([tenant, own])
      for (const namespace of [...spaces, "nobody"]) {
        for (const prefix of prefixes) {
          const wanted = own.filter(
            record =>
              record.namespace === namespace &&
              (prefix === undefined || (prefix.isWellFormed() && record.key.startsWith(prefix)))
          )
          const part = { namespace, prefix }
          expect([part, tenant, yield* feed(0, 1000, tenant, part)]).toEqual([part, tenant, wanted])
          if (prefix === "k/") expect(yield* feed(0, 2, tenant, part)).toEqual(wanted)
        }
      }
    }
    expect((yield* read(0, 1000, "", { namespace: "nobody" })).lastSeq).toBe(whole.length)
    const full = yield* read(0, 1, "", { namespace: "tenant:a/x", prefix: "k/1" })
    expect(full).toMatchObject({ changes: [{ key: "k/1" }], lastSeq: full.changes[0]!.seq })
  })

  check("a namespace with few changes among many is read to the end, however its pages are cut", function* () {
    for (const own of ["n", "tenant:t/n"]) {
      yield* put(own, "first", 1)
      for (let round = 0; round < 5; round++) {
        yield* write(Array.from({ length: 1000 }, (_, index) => set(`${own}x`, `k${index}`, round)))
      }
      yield* put(own, "last", 1)
      const part = { namespace: own }
      expect((yield* feed(0, 1000, "", part)).map(record => record.key)).toEqual(["first", "last"])
      const last = yield* lastSeq
      const log = yield* ChangeLog
      // An empty page says that more records were present, or that it reaches the end.
      for (let after = 0; after < last; ) {
        const page = yield* log.read({ after, limit: 1000, tenant: "", ...part })
        expect(page.lastSeq).toBeGreaterThan(after)
        expect(page.isComplete).toBe(page.lastSeq < last)
        after = page.lastSeq
      }
      expect(yield* read(last, 1, "", part)).toEqual({ changes: [], lastSeq: last })
      expect(yield* read(last + 9, 1, "", part)).toEqual({ changes: [], lastSeq: last })
    }
  })

  check("a page of large values ends early and says so, and a value larger than a page is a page", function* () {
    const log = yield* ChangeLog
    for (let index = 0; index < 6; index++) yield* put(namespace, "k", "x".repeat(mebibyte - 2))
    yield* put(namespace, "k", "x".repeat(6 * mebibyte))
    yield* put(namespace, "k", 1)
    for (const tenant of ["", "t1"]) {
      for (const [after, lastSeq] of [
        [0, 4],
        [6, 7]
      ] as const) {
        const page = yield* log.read({ after, limit: 1000, tenant })
        expect(page).toMatchObject({ changes: { length: lastSeq - after }, lastSeq, isComplete: true })
      }
      expect(yield* log.read({ after: 7, limit: 1000, tenant })).toMatchObject({ lastSeq: 8, isComplete: false })
      expect((yield* feed(0, 1000, tenant)).map(change => change.version)).toEqual([1, 2, 3, 4, 5, 6, 7, 8])
    }
  })

  check("the due times are the first expiry, and that of the oldest record except the newest", function* () {
    const { due } = yield* ChangeLog
    expect(yield* due).toEqual({ expiresAt: null, oldestAt: null })
    yield* put(namespace, "a", 1, { expiresAt: start + 5000 })
    expect(yield* due).toEqual({ expiresAt: start + 5000, oldestAt: null })
    yield* TestClock.setTime(start + 1000)
    yield* put(namespace, "b", 1, { expiresAt: start + 4000 })
    expect(yield* due).toEqual({ expiresAt: start + 4000, oldestAt: start })
    yield* put(namespace, "b", 2)
    expect(yield* due).toEqual({ expiresAt: start + 5000, oldestAt: start })
    yield* TestClock.setTime(start + 6000)
    expect(yield* expireAll).toBe(1)
    yield* trimAll("1 second")
    expect(yield* due).toEqual({ expiresAt: null, oldestAt: null })
  })

  check("any number of records may be trimmed at a time", function* () {
    for (let round = 0; round < 3; round++) {
      yield* write(Array.from({ length: 1000 }, (_, index) => set(namespace, `k${index}`, round)))
    }
    yield* TestClock.adjust("1 hour")
    expect(yield* trimAll("1 minute")).toBe(2999)
    expect(yield* Effect.flip(read(0))).toMatchObject({ trimmedSeq: 2999 })
  })

  check(
    "all waiters wake up when the log grows, by a write or by expiry, and end if they are interrupted",
    function* () {
      const { awaitPast } = yield* ChangeLog
      const interrupted = yield* Effect.forkAll(
        Array.from({ length: 10 }, () => Effect.timeout(awaitPast(0), "1 millis"))
      )
      yield* TestClock.adjust("1 millis")
      expect((yield* Fiber.await(interrupted))._tag).toBe("Failure")
      const wait = (seq: number) =>
        Effect.gen(function* () {
          while ((yield* lastSeq) <= seq) yield* awaitPast(seq)
        })
      const first = yield* Effect.forkAll(Array.from({ length: 100 }, () => wait(0)))
      yield* Effect.yieldNow()
      yield* put(namespace, "k", 1, { expiresAt: start + 1000 })
      yield* Fiber.join(first)
      const second = yield* Effect.fork(wait(1))
      yield* TestClock.setTime(start + 1000)
      expect(yield* expireAll).toBe(1)
      yield* Fiber.join(second)
      expect(yield* lastSeq).toBe(2)
      // It has grown already.
      yield* awaitPast(1)
    }
  )
}
