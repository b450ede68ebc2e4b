/** How a node starts: without its database, with other nodes, and with a database that it refuses. */
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { expect, it } from "@effect/vitest"
import { Context, Duration, Effect, Exit, Layer, Option, Redacted } from "effect"
import pg from "pg"
import { inject } from "vitest"
import { Limits } from "../../../src/base/Limits.ts"
import { SessionEvents } from "../../../src/Gateway/SessionEvents.ts"
import { ChangeLog } from "../../../src/Kv/ChangeLog.ts"
import { Store } from "../../../src/Kv/Store.ts"
import * as Client from "../../../src/Storage/Postgres/Database/Client.ts"
import * as Pool from "../../../src/Storage/Postgres/Database/Pool.ts"
import * as Opening from "../../../src/Storage/Postgres/Opening.ts"
import { createDatabase, newDatabase, newStore, nodeLayer, optionsOf, server, sql } from "../../postgres/Databases.ts"
import { live, onPostgres } from "../../postgres/Live.ts"
import * as Proxy from "../../postgres/Proxy.ts"
import { onlyLong } from "../../Scale.ts"
import { set } from "../../suites/Store/Fixture.ts"
import { test } from "../../Tests.ts"
import { readOne } from "./Database/Fixture.ts"
import {
  isUnavailable,
  later,
  laterSteps,
  limitRole,
  logged,
  namespace,
  node,
  put,
  ready,
  records,
  unlimited,
  withClockAhead
} from "./Fixture.ts"

onPostgres("Postgres, opening", () => {
  live("a node starts without its database, and is ready when that is there", function* () {
    const database = yield* server({})
    const url = yield* Effect.promise(() => createDatabase(database))
    yield* Effect.promise(() => database.stop("fast"))
    const started = yield* node(url)
    expect(yield* started.store.ready).toBe(false)
    expect(isUnavailable(yield* Effect.either(started.store.get(namespace, "k")))).toBe(true)
    expect(isUnavailable(yield* Effect.either(put(started, "k", 0)))).toBe(true)
    yield* Effect.promise(() => database.start())
    yield* ready(started)
    expect(yield* put(started, "k", 1)).toMatchObject({ lastSeq: 1 })
  })

  onlyLong(live)(
    "a node that is stopped in the middle of a migration does not keep others from starting",
    function* () {
      const url = yield* newDatabase
      const proxy = yield* Proxy.make(url)
      proxy.set("black hole", "CREATE SCHEMA causeway")
      yield* Effect.fork(Opening.open(Redacted.make(proxy.url)))
      yield* Effect.promise(() => proxy.affected)
      const other = yield* node(url)
      yield* ready(other)
      expect(yield* put(other, "k", 1)).toMatchObject({ lastSeq: 1 })
    }
  )

  live(
    "sessions have time-outs, flush what they commit and read what is committed, whatever their role is set to",
    function* () {
      const url = yield* newDatabase
      const name = new URL(url).pathname.slice(1)
      yield* sql(
        url,
        `ALTER DATABASE ${name} SET synchronous_commit = off`,
        `ALTER DATABASE ${name} SET default_transaction_isolation = 'serializable'`,
        `ALTER DATABASE ${name} SET default_transaction_read_only = on`,
        `ALTER DATABASE ${name} SET statement_timeout = 1000`,
        `ALTER DATABASE ${name} SET idle_session_timeout = 300`,
        `ALTER DATABASE ${name} SET search_path = nowhere`,
        `ALTER DATABASE ${name} SET standard_conforming_strings = off`
      )
      const pool = yield* Pool.make({
        url: Redacted.make(url),
        isPooled: false,
        max: 1,
        statementTimeout: 1900
      })
      yield* readOne(pool)
      const settings = [
        "statement_timeout",
        "lock_timeout",
        "idle_in_transaction_session_timeout",
        "synchronous_commit",
        "transaction_isolation",
        "transaction_read_only",
        "idle_session_timeout",
        "tcp_keepalives_idle",
        "tcp_user_timeout"
      ]
      const [row] = yield* pool.read({
        text: `SELECT ${settings.map(setting => `current_setting('${setting}')`).join(", ")}`,
        values: [],
        decode: rows => rows
      })
      expect(row).toEqual(["1900ms", "1500ms", "5s", "on", "read committed", "off", "0", "30", "60000"])
      const started = yield* node(url)
      expect(yield* put(started, "k", 1)).toMatchObject({ lastSeq: 1 })
      expect(yield* records(started)).toHaveLength(1)
    }
  )

  test.effect("a role whose time limit is too short to be replaced is named", function* () {
    const client = Object.assign(new pg.Client(), {
      connect: () => Promise.resolve(),
      query: () => {
        const error = new pg.DatabaseError("canceling statement due to statement timeout", 7, "error")
        error.code = "57014"
        return Promise.reject(error)
      }
    })
    const connecting = Effect.tryPromise(() => Client.connectClient(client, { statementTimeout: 1900 }))
    const { error } = yield* Effect.flip(connecting)
    expect(String(error)).toContain("the statement_timeout of the role or of the database is too short")
  })

  live(
    "time limits of the role for transactions and locks end no migration, however late its statements arrive",
    function* () {
      const url = yield* newStore
      const proxy = yield* Proxy.make(url)
      yield* Effect.promise(() => limitRole(url))
      proxy.set("late requests")
      yield* later(Opening.open(Redacted.make(proxy.url)))
      const [row] = yield* sql(unlimited(url), "SELECT max(version) AS version FROM causeway.migrations")
      expect(row).toEqual({ version: laterSteps.length })
    }
  )

  live("a password is in no error and in no log", function* () {
    const hba = join(inject("clusters"), `hba-${process.pid}.conf`)
    writeFileSync(hba, "host all keeper 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n", {
      mode: 0o644
    })
    const database = yield* server({ hba_file: hba })
    const url = yield* Effect.promise(() => createDatabase(database))
    yield* sql(url, "CREATE ROLE keeper LOGIN PASSWORD 'other'")
    const { layer, lines } = logged()
    const secret = new URL(url)
    secret.username = "keeper"
    secret.password = "sesame"
    const outcome = yield* Effect.gen(function* () {
      const started = yield* node(secret.href)
      return yield* Effect.either(put(started, "k", 1))
    }).pipe(Effect.scoped, Effect.provide(layer))
    expect(isUnavailable(outcome)).toBe(true)
    expect(lines.join()).toContain("password authentication failed")
    expect(lines.join() + JSON.stringify(outcome)).not.toContain("sesame")
  })

  const refusal = (url: string) =>
    Effect.map(Effect.exit(Effect.scoped(node(url))), exit =>
      Exit.isFailure(exit) && exit.cause._tag === "Fail" ? exit.cause.error.message : "started"
    )

  const others =
    'was written by a version of causeway with other migrations: its migration 1 is "others", and that of this version ' +
    'is "first release". Start that version, or use another database.'
  const development =
    "was written by a development version before the first release: export its entries with that version and import " +
    "them into another database, or start with an empty one."
  const created = [
    "CREATE SCHEMA causeway",
    "CREATE TABLE causeway.migrations (version integer PRIMARY KEY, name text NOT NULL)"
  ]
  const add = (version: number, name: string) => `INSERT INTO causeway.migrations VALUES (${version}, '${name}')`
  for (const [what, statements, message] of [
    [
      "of a newer version",
      [...created, add(1, "first release"), add(99, "future")],
      `has schema 99, and this version of causeway knows schemas up to ${laterSteps.length}: it was written by a newer version.`
    ],
    ["with another migration under a number", [...created, add(1, "others"), add(2, "later")], others],
    // This version would bring it up to date.
    ["of an older version with another migration", [...created, add(1, "others")], others],
    ["without a migration", [...created, add(2, "later")], others.replace('"others"', "missing")],
    ["of a development version", [...created, add(1, "initial")], development],
    ["of a later development version", [...created, add(1, "initial"), add(2, "sessions")], development]
  ] as const) {
    live(`a schema ${what} is refused, and left as it is`, function* () {
      const url = yield* newDatabase
      const listed = sql(url, "SELECT version, name FROM causeway.migrations ORDER BY 1")
      yield* sql(url, ...statements)
      const before = yield* listed
      expect(yield* later(refusal(url))).toBe(`The store in the database ${message}`)
      expect(yield* listed).toEqual(before)
    })
  }

  const refused: ReadonlyArray<readonly [what: string, version: number, reason: string]> = [
    ["a schema of a newer version", 99, "was written by a newer version"],
    ["an unfinished copy", Opening.unfinishedCopy, "a copy of another store that was not finished"]
  ]
  for (const [what, version, reason] of refused) {
    it.scopedLive(`${what} is not served either if the database was unavailable when the node started`, () => {
      const { layer, lines } = logged()
      return Effect.gen(function* () {
        const url = yield* newDatabase
        const proxy = yield* Proxy.make(url)
        yield* Effect.scoped(Effect.flatMap(node(url), first => put(first, "k", 1)))
        yield* sql(url, `INSERT INTO causeway.migrations (version, name) VALUES (${version}, 'other')`)
        yield* Effect.promise(() => proxy.cut(true))
        const context = yield* Layer.build(nodeLayer(optionsOf(proxy.url)))
        const events = Context.get(context, SessionEvents)
        const started = { store: Context.get(context, Store), log: Context.get(context, ChangeLog) }
        yield* Effect.promise(() => proxy.cut(false))
        yield* Effect.repeat(Effect.sleep("10 millis"), { until: () => lines.some(line => line.includes(reason)) })
        expect(yield* started.store.ready).toBe(false)
        const requests: ReadonlyArray<Effect.Effect<unknown, unknown>> = [
          started.store.get(namespace, "k"),
          started.store.getMany([{ namespace, key: "k" }], 1000),
          started.store.list({ namespace, prefix: "", after: "", limit: 10 }),
          put(started, "k", 2),
          started.log.history,
          started.log.expire,
          started.log.trim(Duration.zero),
          events.open("t/s", "e"),
          events.find("t/s"),
          events.trim(Duration.zero)
        ]
        for (const request of requests) {
          expect(String(yield* Effect.flip(request))).toContain(reason)
        }
        expect(yield* sql(url, "SELECT id FROM causeway.nodes")).toEqual([])
        yield* sql(url, `DELETE FROM causeway.migrations WHERE version = ${version}`)
        yield* ready(started)
        expect(yield* put(started, "k", 3)).toMatchObject({ lastSeq: 2 })
      }).pipe(Effect.provide(layer))
    })
  }

  live("a node whose clock is ahead expires nothing before it has the time of the database", function* () {
    const url = yield* newDatabase
    const proxy = yield* Proxy.make(url)
    const other = yield* node(url)
    const expiresAt = Date.now() + 3_600_000
    yield* other.store.commit({ operations: [set(namespace, "k", 1, { expiresAt })], actor: "tester" })
    yield* withClockAhead(86_400_000)
    // What asks for the time fails.
    proxy.set("requests lost", "causeway.epoch()")
    const started = yield* node(proxy.url)
    expect(isUnavailable(yield* Effect.either(started.log.expire))).toBe(true)
    expect(isUnavailable(yield* Effect.either(started.log.trim(Duration.zero)))).toBe(true)
    expect(isUnavailable(yield* Effect.either(put(started, "other", 1)))).toBe(true)
    proxy.set("open")
    yield* ready(started)
    yield* started.log.expire
    expect(Option.isSome(yield* other.store.get(namespace, "k"))).toBe(true)
    expect((yield* records(started)).map(({ key }) => key)).toEqual(["k"])
  })

  live("a database of another encoding is refused", function* () {
    const url = yield* newDatabase
    const name = `ascii_${process.pid}`
    yield* sql(url, `CREATE DATABASE ${name} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0`)
    expect(yield* refusal(url.replace(/[^/]+$/, name))).toContain("has the encoding SQL_ASCII")
  })

  live("limits that let names outgrow an index are refused, and the longest that are allowed fit", function* () {
    const url = yield* newDatabase
    const limits = { ...(yield* Limits), namespaceBytes: 660, keyBytes: 2000 }
    const tooLong = yield* Effect.exit(
      Effect.scoped(node(url)).pipe(Effect.provideService(Limits, { ...limits, keyBytes: 2001 }))
    )
    expect(String(tooLong)).toContain("LIMIT_KEY_BYTES (2001)")
    const started = yield* Effect.provideService(node(url), Limits, limits)
    // Digits that repeat nothing cannot be compressed.
    let seed = 1
    const digits = (length: number) =>
      Array.from({ length }, () => {
        seed = (seed * 48271) % 2147483647
        return String.fromCharCode(33 + (seed % 90))
      }).join("")
    const names = { namespace: `tenant:${digits(653)}`, key: digits(2000) }
    const operation = { op: "delete", ...names } as const
    yield* started.store.commit({ operations: [set(names.namespace, names.key, 1)], actor: "tester" })
    expect(yield* started.store.commit({ operations: [operation], actor: "tester" })).toMatchObject({
      results: [{ op: "delete", deleted: true }]
    })
  })
})
