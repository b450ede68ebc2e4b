/** Which epoch the log in a database has. */

import { expect } from "@effect/vitest"
import { Context, Effect, Fiber, Layer } from "effect"
import { SessionEvents } from "../../../src/Gateway/SessionEvents.ts"
import * as Change from "../../../src/Kv/Change.ts"
import { Store } from "../../../src/Kv/Store.ts"
import { fencesOf } from "../../Docs/Page.ts"
import { copyOf, createDatabase, newDatabase, nodeLayer, optionsOf, server, sql } from "../../postgres/Databases.ts"
import { live, onPostgres } from "../../postgres/Live.ts"
import { persist } from "../../postgres/Opened.ts"
import * as Proxy from "../../postgres/Proxy.ts"
import { set } from "../../suites/Store/Fixture.ts"
import { behindProxy, logged, namespace, node, put, ready, records } from "./Fixture.ts"

onPostgres("Postgres, epochs", () => {
  live(
    "a fail-over to a standby that lacks the newest writes gives their numbers again, in another epoch",
    function* () {
      const database = yield* server({})
      const url = yield* Effect.promise(() => createDatabase(database))
      const proxy = yield* Proxy.make(url)
      const started = yield* node(proxy.url)
      for (const key of ["a", "b"]) yield* put(started, key, 1)
      const before = yield* started.log.read({ after: 0, limit: 10, tenant: "" })
      yield* Effect.promise(() => database.stop("fast"))
      const standby = yield* copyOf(database)
      yield* Effect.promise(() => database.start())
      yield* persist(put(started, "lost", 1))
      const waiting = yield* Effect.fork(started.log.awaitPast(yield* started.log.lastSeq))
      yield* Effect.promise(() => database.stop("immediate"))
      yield* Effect.promise(() => standby.start("standby"))
      yield* sql(standby.urlOf("postgres"), "SELECT pg_promote()")
      proxy.lead(standby.port)
      yield* Fiber.join(waiting)
      yield* ready(started)
      yield* persist(put(started, "new", 1))
      const after = yield* started.log.read({ after: 0, limit: 10, tenant: "" })
      expect(after.epoch).not.toBe(before.epoch)
      expect(after.changes.map(Change.decode).map(({ seq, key }) => `${seq} ${key}`)).toEqual(["1 a", "2 b", "3 new"])
      // Another one that is promoted takes the same timeline, as the two share no archive.
      yield* Effect.promise(() => database.start("standby"))
      yield* sql(database.urlOf("postgres"), "SELECT pg_promote()")
      const timelines = yield* Effect.forEach([standby, database], ({ urlOf }) =>
        sql(urlOf("postgres"), "SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)")
      )
      expect(timelines[1]).toEqual(timelines[0])
      const other = yield* node(url)
      const elsewhere = yield* other.log.read({ after: 0, limit: 10, tenant: "" })
      expect([before.epoch, after.epoch]).not.toContain(elsewhere.epoch)
    }
  )

  live("a standby is not read from, and when it is promoted the log has another epoch", function* () {
    const database = yield* server({})
    const url = yield* Effect.promise(() => createDatabase(database))
    const started = yield* node(url)
    yield* put(started, "k", 1)
    const epochs = Effect.gen(function* () {
      const page = yield* started.log.read({ after: 0, limit: 10, tenant: "" })
      const list = yield* started.store.list({ namespace, prefix: "", after: "", limit: 10 })
      expect(list.epoch).toBe(page.epoch)
      expect(page.epoch).toMatch(/^[\w.-]{1,64}$/)
      return { epoch: page.epoch, history: yield* started.log.history }
    })
    const before = yield* epochs
    expect(yield* epochs).toEqual(before)
    yield* Effect.promise(() => database.stop("fast"))
    yield* Effect.promise(() => database.start("standby"))
    expect(yield* Effect.either(started.store.get(namespace, "k"))).toMatchObject({
      left: { reason: "the database is a standby" }
    })
    const waiting = yield* Effect.fork(started.log.awaitPast(1))
    yield* sql(url, "SELECT pg_promote()")
    yield* ready(started)
    yield* Fiber.join(waiting)
    const after = yield* epochs
    expect(after.epoch).not.toBe(before.epoch)
    expect(after.history).not.toBe(before.history)
  })

  live("a database that becomes part of another cluster has another epoch, and so it has on demand", function* () {
    const { proxy, started, url } = yield* behindProxy
    const epoch = Effect.map(started.log.read({ after: 0, limit: 1, tenant: "" }), page => page.epoch)
    const first = yield* epoch
    yield* Effect.promise(() => proxy.cut(false))
    yield* ready(started)
    expect(yield* epoch).toBe(first)
    // As a dump has it that is restored elsewhere; connections have ended by then.
    yield* sql(url, "UPDATE causeway.log SET system_identifier = 'another'")
    yield* Effect.promise(() => proxy.cut(false))
    yield* ready(started)
    const second = yield* epoch
    expect(second).not.toBe(first)
    yield* sql(url, "SELECT causeway.renew_epoch()")
    expect([first, second]).not.toContain(yield* epoch)
  })

  for (const isWritten of [false, true]) {
    const then = isWritten ? ", and then written to," : ""
    live(`a database that is brought back to an older state${then} has another epoch on every node`, function* () {
      const url = yield* newDatabase
      const [one, other] = [yield* node(url), yield* node(url)]
      for (const key of ["a", "b", "c"]) yield* put(one, key, 1)
      const epochOf = ({ log }: typeof one) =>
        Effect.map(log.read({ after: 0, limit: 1, tenant: "" }), page => page.epoch)
      const before = yield* epochOf(one)
      const waiting = yield* Effect.fork(other.log.awaitPast(3))
      yield* sql(url, "DELETE FROM causeway.changes WHERE seq > 1")
      if (isWritten) for (const key of ["d", "e", "f"]) yield* put(one, key, 1)
      yield* Fiber.join(waiting)
      for (const started of [one, other]) {
        yield* Effect.repeat(epochOf(started), { until: epoch => epoch !== before })
      }
      expect(yield* epochOf(one)).toBe(yield* epochOf(other))
      yield* put(one, "z", 1)
    })
  }

  live(
    "a database that is brought back has another epoch, also if the next group is as long as what it lacks",
    function* () {
      const url = yield* newDatabase
      yield* Effect.scoped(
        Effect.flatMap(node(url), other => Effect.forEach(["a", "b", "c"], key => put(other, key, 1)))
      )
      // It knows the changes of the other node only from reading the end of the log.
      const { log, store } = yield* node(url)
      const epoch = Effect.map(log.read({ after: 0, limit: 1, tenant: "" }), page => page.epoch)
      const before = yield* epoch
      yield* sql(url, "DELETE FROM causeway.changes WHERE seq > 1")
      yield* store.commit({ operations: [set(namespace, "d", 1), set(namespace, "e", 1)], actor: "tester" })
      yield* Effect.repeat(epoch, { until: now => now !== before })
    }
  )

  live("a role that may not know the timeline is served, with a warning", function* () {
    const url = yield* newDatabase
    const role = `limited_${process.pid}`
    const name = new URL(url).pathname.slice(1)
    yield* sql(
      url,
      `CREATE ROLE ${role} LOGIN`,
      `GRANT CREATE ON DATABASE ${name} TO ${role}`,
      "REVOKE EXECUTE ON FUNCTION pg_walfile_name(pg_lsn) FROM PUBLIC"
    )
    const { layer, lines } = logged()
    const limited = new URL(url)
    limited.username = role
    yield* Effect.gen(function* () {
      const started = yield* node(limited.href)
      yield* put(started, "k", 1)
      expect(yield* records(started)).toHaveLength(1)
    }).pipe(Effect.scoped, Effect.provide(layer))
    expect(lines.join()).toContain("does not change the epoch")
  })
})

onPostgres("Postgres, a promoted logical replica", () => {
  live("stores sessions and counts entries after its sequences were set", function* () {
    const url = yield* newDatabase
    const run = (...statements: ReadonlyArray<string>) => sql(url, ...statements)
    const started = Effect.map(Layer.build(nodeLayer(optionsOf(url))), context => ({
      events: Context.get(context, SessionEvents),
      store: Context.get(context, Store)
    }))
    const write = (store: Context.Tag.Service<Store>, ...keys: ReadonlyArray<string>) =>
      Effect.forEach(keys, key => store.commit({ operations: [set(namespace, key, 1)], actor: "tester" }))
    yield* Effect.scoped(
      Effect.gen(function* () {
        const { events, store } = yield* started
        yield* write(store, "a", "b", "c")
        yield* events.open("t/before", "e")
      })
    )
    yield* run("SELECT causeway.fold_counts(1, 1000)")
    const sequences = yield* run("SELECT sequencename AS name FROM pg_sequences WHERE schemaname = 'causeway'")
    expect(sequences).toHaveLength(4)
    yield* run(...sequences.map(({ name }) => `ALTER SEQUENCE causeway.${name} RESTART`))

    const [statement] = fencesOf("docs/operate/postgresql.md").filter(({ code }) => code.includes("setval("))
    yield* run(statement!.code)
    const { events, store } = yield* started
    yield* events.open("t/after", "e")
    yield* write(store, "d")
    const { namespaces } = yield* store.namespaces({ prefix: "", after: "", limit: 10, tenant: "" })
    expect(namespaces).toEqual([{ namespace, count: 4 }])
  })
})
