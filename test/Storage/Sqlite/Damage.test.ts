/** A service on a database with pages that cannot be read: it serves all that does not need them. */
import { closeSync, openSync, writeSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import Database from "better-sqlite3"
import { Effect, Logger, Schema } from "effect"
import { WebSocket } from "ws"
import { JsonText } from "../../../src/base/Json/JsonText.ts"
import { ChangeLog } from "../../../src/Kv/ChangeLog.ts"
import { Store } from "../../../src/Kv/Store.ts"
import * as Sqlite from "../../../src/Storage/Sqlite.ts"
import { serve } from "../../service/InProcess.ts"
import { set } from "../../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"
import { test } from "../../Tests.ts"
import { countedOf, listening } from "./DamageFixture.ts"

const apiKey = "key-that-writes"
const entriesPerTenant = 200
const namespaceOf = (tenant: string) => `tenant:${tenant}/n`
const keyOf = (index: number) => `k${String(index).padStart(4, "0")}`

/** Entries of two tenants, those of `a` first, each with a change record, on some hundred pages. */
const fill = (directory: string) =>
  Effect.gen(function* () {
    const store = yield* Store
    for (const tenant of ["a", "b"]) {
      const operations = Array.from({ length: entriesPerTenant }, (_, index) => ({
        op: "set" as const,
        namespace: namespaceOf(tenant),
        key: keyOf(index),
        value: JsonText(JSON.stringify("x".repeat(400))),
        expiresAt: null
      }))
      yield* store.commit({ operations, actor: "tester" })
    }
  }).pipe(Effect.provide(Sqlite.layer({ directory, writer: "inline" })))

interface Damage {
  /** The keys of tenant `b` whose entries are on a damaged page. */
  readonly keys: ReadonlyArray<string>
  /** The records on a damaged page: a range of tenant `b`. */
  readonly first: number
  readonly last: number
}

/** Overwrites pages of a database. */
const overwrite = (file: string, pages: ReadonlyArray<number>): void => {
  const descriptor = openSync(file, "r+")
  for (const page of pages) writeSync(descriptor, Buffer.alloc(4096, 0xff), 0, 4096, (page - 1) * 4096)
  closeSync(descriptor)
}

/**
 * Damages one page with entries and one with change records, at three quarters of each table, where the rows of `b`
 * are.
 */
const spoil = (file: string): Damage => {
  const db = new Database(file, { readonly: true })
  const leaves = db
    .prepare<[string], number>("SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY path")
    .pluck()
  const pages = ["entries", "changes"].map(table => {
    const all = leaves.all(table)
    return all[Math.floor(all.length * 0.75)]!
  })
  overwrite(file, pages)
  db.close()
  const spoilt = new Database(file, { readonly: true })
  const isSpoilt = (sql: string, ...parameters: ReadonlyArray<unknown>): boolean => {
    try {
      spoilt.prepare(sql).get(...parameters)
      return false
    } catch {
      return true
    }
  }
  const keys = Array.from({ length: entriesPerTenant }, (_, index) => keyOf(index)).filter(key =>
    isSpoilt("SELECT * FROM entries WHERE namespace = ? AND key = ?", namespaceOf("b"), key)
  )
  const seqs = Array.from({ length: 2 * entriesPerTenant }, (_, index) => index + 1).filter(seq =>
    isSpoilt("SELECT * FROM changes WHERE seq = ?", seq)
  )
  spoilt.close()
  expect(keys.length).toBeGreaterThan(1)
  expect(seqs.length).toBeGreaterThan(1)
  return { keys, first: seqs[0]!, last: seqs.at(-1)! }
}

const Changes = Schema.Struct({ changes: Schema.Array(Schema.Struct({ seq: Schema.Int })), lastSeq: Schema.Int })

const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, index) => from + index)

/** Whatever a WebSocket is sent, until it is closed or has seen a record. */
const follow = (url: string, query: string, until = Number.POSITIVE_INFINITY) =>
  Effect.async<{ readonly seqs: ReadonlyArray<number>; readonly code: number | undefined }>(resume => {
    const seqs: Array<number> = []
    const socket = new WebSocket(`${url.replace("http", "ws")}/api/v1/changes/ws?${query}`, {
      headers: { authorization: `Bearer ${apiKey}` }
    })
    socket.on("message", data => {
      const frame = Schema.decodeUnknownSync(Schema.parseJson(Changes))(String(data))
      seqs.push(...frame.changes.map(({ seq }) => seq))
      if (frame.lastSeq < until) return
      resume(Effect.succeed({ seqs, code: undefined }))
      socket.terminate()
    })
    socket.on("error", () => {})
    socket.on("close", code => resume(Effect.succeed({ seqs, code })))
    return Effect.sync(() => socket.terminate())
  })

const launch = (directory: string) =>
  Effect.gen(function* () {
    const { url } = yield* serve({ DATA_DIR: directory, KV_API_KEY: apiKey })
    const call = (path: string, init: RequestInit = {}) =>
      Effect.promise(async () => {
        const headers = { authorization: `Bearer ${apiKey}`, "content-type": "application/json" }
        const cut = { status: undefined, text: "cut off" }
        // The text of a list that is cut off never ends. A short one may be cut before its head is sent.
        const answer = await fetch(`${url}/api/v1${path}`, { ...init, headers }).catch(() => undefined)
        if (answer === undefined) return cut
        const text = await answer.text().catch(() => cut.text)
        return { status: answer.status, text }
      })
    return { url, call }
  })

/** What the service must still do. */
const examine = (url: string, call: Effect.Effect.Success<ReturnType<typeof launch>>["call"], damage: Damage) =>
  Effect.gen(function* () {
    const end = 2 * entriesPerTenant
    const { first, last } = damage
    const entry = (tenant: string, key: string) => `/kv/${encodeURIComponent(namespaceOf(tenant))}/${key}`
    const put = (tenant: string, key: string) =>
      call(entry(tenant, key), { method: "PUT", body: JSON.stringify({ value: 1 }) })
    const page = (query: string) =>
      Effect.map(call(`/changes?${query}`), ({ status, text }) =>
        status === 200 ? Schema.decodeUnknownSync(Schema.parseJson(Changes))(text) : status
      )

    // Many at a time, so that reads share a snapshot.
    for (const tenant of ["a", "b"]) {
      const keys = Array.from({ length: entriesPerTenant }, (_, index) => keyOf(index))
      const answers = yield* Effect.forEach(keys, key => call(entry(tenant, key)), { concurrency: 16 })
      const failed = keys.filter((_, index) => answers[index]!.status === 503)
      expect(failed).toEqual(tenant === "b" ? damage.keys : [])
      expect(answers.filter(({ status }) => status === 200)).toHaveLength(entriesPerTenant - failed.length)
    }

    // Polls: all that goes before, then 503, then all that comes behind; the other tenant misses nothing.
    const before = yield* page("after=0&limit=1000")
    expect(before).toMatchObject({ lastSeq: first - 1 })
    expect(typeof before === "object" && before.changes.map(({ seq }) => seq)).toEqual(range(1, first - 1))
    expect(yield* page(`after=${first - 1}`)).toBe(503)
    expect(yield* page(`after=${last - 1}&wait=1`)).toBe(503)
    expect(yield* page(`after=${last}&limit=1000`)).toMatchObject({ lastSeq: end })
    expect(yield* page("after=0&limit=1000&tenant=a")).toMatchObject({ lastSeq: end })

    // Followers: those that need the records are closed, and never receive later ones.
    expect(yield* follow(url, "after=0&limit=50")).toEqual({ seqs: range(1, first - 1), code: 1011 })
    const stream = yield* call("/changes/stream?after=0")
    expect(stream.status).toBe(200)
    expect([...stream.text.matchAll(/^id: (\d+)@\w+\ndata/gm)].map(([, seq]) => Number(seq))).toEqual(
      range(1, first - 1)
    )
    const others = yield* Effect.fork(follow(url, "after=0&tenant=a", end + 2))
    const atEnd = yield* Effect.fork(follow(url, `after=${end}`, end + 2))

    // Lists: those of the other tenant, and pages up to the damaged one.
    expect((yield* call(`/kv/${encodeURIComponent(namespaceOf("a"))}`)).status).toBe(200)
    expect((yield* call(`/kv/${encodeURIComponent(namespaceOf("b"))}?limit=1000`)).text).toContain(keyOf(0))
    expect((yield* call(`/kv/${encodeURIComponent(namespaceOf("b"))}`)).text).toBe("cut off")

    // Of writes, only those of damaged entries fail, also in a group with others.
    const written = yield* Effect.all([put("a", keyOf(1)), put("b", damage.keys[0]!), put("a", "new")], {
      concurrency: "unbounded"
    })
    expect(written.map(({ status }) => status)).toEqual([200, 503, 200])
    expect(yield* others).toEqual({ seqs: [...range(1, entriesPerTenant), end + 1, end + 2], code: undefined })
    expect(yield* atEnd).toEqual({ seqs: [end + 1, end + 2], code: undefined })
    expect((yield* call("/ready")).text).toContain('"ok":true')
  })

const counted = countedOf("store")

describe("a database with damaged pages", () => {
  it.scopedLive.each(["is stopped", "runs"])("while the service %s: it serves all that does not need them", state =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      yield* fill(directory)
      const file = join(directory, "kv.db")
      const before = state === "is stopped" ? spoil(file) : undefined
      const { call, url } = yield* launch(directory)
      yield* examine(url, call, before ?? spoil(file))
    })
  )

  test.scopedLive(
    "at the end of the log: the service starts without writes, and serves entries and earlier records",
    function* () {
      const directory = yield* temporaryDirectory
      yield* fill(directory)
      const file = join(directory, "kv.db")
      const db = new Database(file, { readonly: true })
      const [last] = db
        .prepare<[], number>(
          "SELECT pageno FROM dbstat WHERE name = 'changes' AND pagetype = 'leaf' ORDER BY path DESC"
        )
        .pluck()
        .all()
      db.close()
      overwrite(file, [last!])
      const { call } = yield* launch(directory)
      const entry = `/kv/${encodeURIComponent(namespaceOf("b"))}/${keyOf(7)}`
      expect((yield* call(entry)).status).toBe(200)
      expect((yield* call(entry, { method: "PUT", body: '{"value":1}' })).status).toBe(503)
      expect((yield* call("/ready")).text).toContain('"ok":false')
      expect((yield* call(entry)).status).toBe(200)
    }
  )

  test.scopedLive("at the start of the log: reads behind it are served, and count it", function* () {
    const directory = yield* temporaryDirectory
    yield* fill(directory)
    const file = join(directory, "kv.db")
    const db = new Database(file, { readonly: true })
    const first = db
      .prepare<[], number>("SELECT pageno FROM dbstat WHERE name = 'changes' AND pagetype = 'leaf' ORDER BY path")
      .pluck()
      .get()
    db.close()
    overwrite(file, [first!])
    const before = yield* counted("read")
    yield* Effect.gen(function* () {
      const log = yield* ChangeLog
      const after = entriesPerTenant
      for (let tries = 0; tries < 2; tries++) {
        expect((yield* log.read({ after, limit: 10, tenant: "" })).changes).toHaveLength(10)
      }
      expect(yield* Effect.flip(log.read({ after: 0, limit: 10, tenant: "" }))).toMatchObject({ isUnreadable: true })
    }).pipe(
      Effect.provide(Sqlite.layer({ directory, writer: "inline" })),
      Effect.provide(Logger.remove(Logger.defaultLogger))
    )
    expect((yield* counted("read")) - before).toBeGreaterThanOrEqual(3)
  })

  for (const writer of ["inline", "thread"] as const) {
    test.scopedLive(`is counted, and logged once for a while, written ${writer}`, function* () {
      const directory = yield* temporaryDirectory
      yield* fill(directory)
      const file = join(directory, "kv.db")
      const [key = ""] = spoil(file).keys
      const lines: Array<string> = []
      const before = [yield* counted("read"), yield* counted("write")]
      yield* Effect.gen(function* () {
        const store = yield* Store
        for (let tries = 0; tries < 3; tries++) {
          expect(yield* Effect.flip(store.get(namespaceOf("b"), key))).toMatchObject({
            _tag: "StoreUnavailable",
            reason: expect.stringMatching(/^SQLITE_CORRUPT/)
          })
        }
        const write = (tenant: string) =>
          Effect.either(store.commit({ operations: [set(namespaceOf(tenant), key, 1)], actor: "tester" }))
        // All of them at once, and so in one group or two.
        const outcomes = yield* Effect.all([write("a"), write("b"), write("a")], { concurrency: "unbounded" })
        expect(outcomes.map(({ _tag }) => _tag)).toEqual(["Right", "Left", "Right"])
      }).pipe(Effect.provide(Sqlite.layer({ directory, writer })), listening(lines))
      expect([(yield* counted("read")) - before[0]!, (yield* counted("write")) - before[1]!]).toEqual([3, 1])
      expect(lines).toEqual(["The store database is damaged"])
    })
  }
})
