/** What a node does while its database is away, slow, or not what it should be. */
import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import { Context, Effect, Either, Exit, Fiber, Layer, Logger, LogLevel, Option, Redacted, type Scope } from "effect"
import { inject } from "vitest"
import * as Change from "../../../src/Kv/Change.ts"
import { ChangeLog } from "../../../src/Kv/ChangeLog.ts"
import { Store, StoreUnavailable } from "../../../src/Kv/Store.ts"
import { Limits } from "../../../src/Limits.ts"
import * as Connections from "../../../src/Storage/Postgres/Connections.ts"
import * as GroupCall from "../../../src/Storage/Postgres/GroupCall.ts"
import * as Opening from "../../../src/Storage/Postgres/Opening.ts"
import { migrations } from "../../../src/Storage/Postgres/Schema.ts"
import * as Postgres from "../../../src/Storage/Postgres.ts"
import {
  copyOf,
  createDatabase,
  execute,
  optionsOf,
  server,
  withClient,
  withOwnClock
} from "../../postgres/Databases.ts"
import * as Proxy from "../../postgres/Proxy.ts"
import { reasonToSkip } from "../../postgres/Server.ts"
import { set } from "../../suites/Store/Fixture.ts"

const namespace = "tenant:t/failure"

const node = (options: Postgres.Options) =>
  Effect.map(Layer.build(Postgres.layer(options)), context => ({
    store: Context.get(context, Store),
    log: Context.get(context, ChangeLog)
  }))

type Node = Effect.Effect.Success<ReturnType<typeof node>>

const put = ({ store }: Node, key: string, value: unknown) =>
  store.commit({ operations: [set(namespace, key, value)], actor: "tester" })

const isUnavailable = (outcome: Either.Either<unknown, unknown>): boolean =>
  Either.isLeft(outcome) && outcome.left instanceof StoreUnavailable

/** Waits until the store says that it is ready. */
const ready = ({ store }: Node) => Effect.repeat(store.ready, { until: isReady => isReady })

const records = ({ log }: Node) =>
  Effect.map(log.read({ after: 0, limit: 1000, tenant: "" }), ({ changes }) => changes.map(Change.decode))

/** Collects what is logged. */
const logged = () => {
  const lines: Array<string> = []
  const layer = Logger.replace(
    Logger.defaultLogger,
    Logger.map(Logger.jsonLogger, line => {
      lines.push(line)
    })
  )
  return { lines, layer: Layer.merge(layer, Logger.minimumLogLevel(LogLevel.Debug)) }
}

const quiet = Logger.remove(Logger.defaultLogger)

describe.skipIf(reasonToSkip !== undefined)(`Postgres, failures${reasonToSkip ?? ""}`, () => {
  it.scopedLive("a node starts without its database, and is ready when that is there", () =>
    Effect.gen(function* () {
      const database = yield* server({})
      const url = yield* Effect.promise(() => createDatabase(database))
      yield* Effect.promise(() => database.stop("fast"))
      const started = yield* node(optionsOf(url))
      expect(yield* started.store.ready).toBe(false)
      expect(isUnavailable(yield* Effect.either(started.store.get(namespace, "k")))).toBe(true)
      expect(isUnavailable(yield* Effect.either(put(started, "k", 0)))).toBe(true)
      yield* Effect.promise(() => database.start())
      yield* ready(started)
      expect(yield* put(started, "k", 1)).toMatchObject({ lastSeq: 1 })
    }).pipe(Effect.provide(quiet))
  )

  it.scopedLive("what was acknowledged outlives a database that is stopped at once, and the node goes on", () =>
    Effect.gen(function* () {
      const database = yield* server({})
      const url = yield* Effect.promise(() => createDatabase(database))
      const started = yield* node(optionsOf(url))
      const acknowledged: Array<string> = []
      let isOver = false
      const writing = yield* Effect.fork(
        Effect.forEach(
          ["a", "b", "c", "d"],
          writer =>
            Effect.gen(function* () {
              for (let n = 0; !isOver; n++) {
                const outcome = yield* Effect.either(put(started, `${writer}${n}`, n))
                if (Either.isRight(outcome)) acknowledged.push(`${writer}${n}`)
                else expect(outcome.left).toBeInstanceOf(StoreUnavailable)
              }
            }),
          { concurrency: "unbounded" }
        )
      )
      for (let round = 0; round < 2; round++) {
        const before = acknowledged.length
        yield* Effect.repeat(Effect.yieldNow(), { until: () => acknowledged.length > before + 20 })
        yield* Effect.promise(() => database.stop("immediate"))
        yield* Effect.promise(() => database.start())
        yield* ready(started)
      }
      isOver = true
      yield* writing.await
      const keys = new Set<string>()
      const seqs: Array<number> = []
      for (let after = 0, last = yield* started.log.lastSeq; after < last; ) {
        const page = yield* started.log.read({ after, limit: 1000, tenant: "" })
        for (const change of page.changes.map(Change.decode)) {
          keys.add(change.key)
          seqs.push(change.seq)
        }
        after = page.lastSeq
      }
      expect(seqs).toEqual(seqs.map((_, index) => index + 1))
      expect(acknowledged.filter(key => !keys.has(key))).toEqual([])
    }).pipe(Effect.provide(quiet))
  )

  const lost = (mode: Proxy.Mode) =>
    Effect.gen(function* () {
      const url = yield* Effect.promise(() => createDatabase())
      const proxy = yield* Proxy.make(url)
      const started = yield* node(optionsOf(proxy.url))
      yield* put(started, "k", 1)
      proxy.set(mode, "commit_group")
      void proxy.affected.then(() => proxy.set("open"))
      const outcome = yield* put(started, "k", 2)
      yield* Effect.promise(() => proxy.affected)
      return { outcome, log: yield* records(started) }
    }).pipe(Effect.provide(quiet))

  it.scopedLive("a commit whose answer is lost is found out about, and not repeated", () =>
    Effect.gen(function* () {
      const { log, outcome } = yield* lost("answers lost")
      expect(outcome).toMatchObject({ results: [{ op: "set", version: 2 }], lastSeq: 2 })
      expect(log.map(({ version }) => version)).toEqual([1, 2])
    })
  )

  it.scopedLive("a commit that has never arrived is repeated", () =>
    Effect.gen(function* () {
      const { log, outcome } = yield* lost("requests lost")
      expect(outcome).toMatchObject({ results: [{ op: "set", version: 2 }], lastSeq: 2 })
      expect(log.map(({ version }) => version)).toEqual([1, 2])
    })
  )

  it.scopedLive(
    "a commit that is so old that its mark may be gone is not repeated, and no later one is kept back",
    () =>
      Effect.gen(function* () {
        const url = yield* Effect.promise(() => createDatabase())
        yield* Effect.promise(() => withOwnClock(url))
        const proxy = yield* Proxy.make(url)
        const started = yield* node(optionsOf(proxy.url))
        yield* put(started, "k", 1)
        // The node was stopped before it asks: a minute has passed, and the mark was removed.
        yield* Effect.promise(() =>
          execute(
            url,
            `CREATE FUNCTION own.pass() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             UPDATE own.clock SET ahead = 61000;
             DELETE FROM causeway.commits;
             RETURN NEW;
           END $$`,
            `CREATE TRIGGER pass BEFORE INSERT ON causeway.commits FOR EACH ROW WHEN (NEW.result IS NULL)
             EXECUTE FUNCTION own.pass()`
          )
        )
        proxy.set("answers lost", "commit_group")
        void proxy.affected.then(() => proxy.set("open"))
        expect(yield* Effect.flip(put(started, "k", 2))).toMatchObject({
          _tag: "StoreUnavailable",
          reason: expect.stringMatching("the outcome of a commit is unknown")
        })
        expect(yield* put(started, "k", 3)).toMatchObject({ results: [{ op: "set", version: 3 }], lastSeq: 3 })
        expect((yield* records(started)).map(({ value }) => value)).toEqual(["1", "2", "3"])
      }).pipe(Effect.provide(quiet))
  )

  it.scopedLive("a mark that keeps a commit from happening outlives those of commits that have", () =>
    Effect.gen(function* () {
      const url = yield* Effect.promise(() => createDatabase())
      const setClock = yield* Effect.promise(() => withOwnClock(url))
      yield* node(optionsOf(url))
      const marked = ["a", "b"].map(digit => digit.repeat(32))
      yield* Effect.promise(() =>
        execute(url, `INSERT INTO causeway.commits (id, result) VALUES ('${marked[0]}', NULL), ('${marked[1]}', '1,0')`)
      )
      const left = Effect.promise(async () => {
        const rows = await execute(
          url,
          GroupCall.prune.text,
          "SELECT replace(id::text, '-', '') AS id FROM causeway.commits"
        )
        return rows.map(({ id }) => id)
      })
      expect((yield* left).toSorted()).toEqual(marked)
      yield* Effect.promise(() => setClock(61_000))
      expect(yield* left).toEqual([marked[0]])
      yield* Effect.promise(() => setClock(3_601_000))
      expect(yield* left).toEqual([])
    })
  )

  it.scopedLive("a node that is stopped in the middle of a migration does not keep others from starting", () =>
    Effect.gen(function* () {
      const url = yield* Effect.promise(() => createDatabase())
      const proxy = yield* Proxy.make(url)
      proxy.set("black hole", "CREATE SCHEMA causeway")
      yield* Effect.fork(Opening.open(Redacted.make(proxy.url)))
      yield* Effect.promise(() => proxy.affected)
      const other = yield* node(optionsOf(url))
      yield* ready(other)
      expect(yield* put(other, "k", 1)).toMatchObject({ lastSeq: 1 })
    }).pipe(Effect.provide(quiet))
  )

  it.scopedLive("a commit whose outcome cannot be asked for is reported as unavailable, and later ones succeed", () =>
    Effect.gen(function* () {
      const url = yield* Effect.promise(() => createDatabase())
      const proxy = yield* Proxy.make(url)
      const started = yield* node(optionsOf(proxy.url))
      yield* put(started, "k", 1)
      proxy.set("answers lost")
      expect(isUnavailable(yield* Effect.either(put(started, "k", 2)))).toBe(true)
      proxy.set("open")
      yield* ready(started)
      const { lastSeq } = yield* Effect.retry(put(started, "k", 3), {
        while: error => error instanceof StoreUnavailable
      })
      expect((yield* records(started)).map(({ seq }) => seq)).toEqual(
        Array.from({ length: lastSeq }, (_, at) => at + 1)
      )
    }).pipe(Effect.provide(quiet))
  )

  it.scopedLive("all is unavailable while connections lead into a black hole, and later requests use new ones", () =>
    Effect.gen(function* () {
      const url = yield* Effect.promise(() => createDatabase())
      const proxy = yield* Proxy.make(url)
      const started = yield* node(optionsOf(proxy.url))
      yield* put(started, "k", 1)
      const requests: ReadonlyArray<Effect.Effect<unknown, unknown, Scope.Scope>> = [
        started.store.get(namespace, "k"),
        started.store.list({ namespace, prefix: "", after: "", limit: 10 }),
        started.store.listAll({ namespace, prefix: "" }),
        records(started),
        started.log.history
      ]
      yield* Effect.all(requests, { concurrency: "unbounded" })
      proxy.set("black hole")
      const outcomes = yield* Effect.all([...requests, put(started, "k", 2)].map(Effect.either), {
        concurrency: "unbounded"
      })
      expect(outcomes.filter(outcome => !isUnavailable(outcome))).toEqual([])
      proxy.set("open")
      yield* Effect.all(
        requests.map(request => Effect.retry(request, { while: error => error instanceof StoreUnavailable })),
        { concurrency: "unbounded" }
      )
    }).pipe(Effect.provide(quiet))
  )

  it.scopedLive(
    "a fail-over to a standby that lacks the newest writes gives their numbers again, in another epoch",
    () =>
      Effect.gen(function* () {
        const database = yield* server({})
        const url = yield* Effect.promise(() => createDatabase(database))
        const proxy = yield* Proxy.make(url)
        const started = yield* node(optionsOf(proxy.url))
        for (const key of ["a", "b"]) yield* put(started, key, 1)
        const before = yield* started.log.read({ after: 0, limit: 10, tenant: "" })
        yield* Effect.promise(() => database.stop("fast"))
        const standby = yield* copyOf(database)
        yield* Effect.promise(() => database.start())
        yield* Effect.retry(put(started, "lost", 1), { while: error => error instanceof StoreUnavailable })
        const waiting = yield* Effect.fork(started.log.awaitPast(yield* started.log.lastSeq))
        yield* Effect.promise(() => database.stop("immediate"))
        yield* Effect.promise(() => standby.start("standby"))
        yield* Effect.promise(() => execute(standby.urlOf("postgres"), "SELECT pg_promote()"))
        proxy.lead(standby.port)
        yield* Fiber.join(waiting)
        yield* ready(started)
        yield* Effect.retry(put(started, "new", 1), { while: error => error instanceof StoreUnavailable })
        const after = yield* started.log.read({ after: 0, limit: 10, tenant: "" })
        expect(after.epoch).not.toBe(before.epoch)
        expect(after.changes.map(Change.decode).map(({ seq, key }) => `${seq} ${key}`)).toEqual(["1 a", "2 b", "3 new"])
      }).pipe(Effect.provide(quiet))
  )

  it.scopedLive(
    "reads and writes that wait too long for a lock are unavailable, however few connections there are",
    () =>
      Effect.gen(function* () {
        const url = yield* Effect.promise(() => createDatabase())
        const started = yield* node({ ...optionsOf(url), connections: 1 })
        yield* put(started, "k", 1)
        yield* withClient(url, other =>
          Effect.gen(function* () {
            yield* other("BEGIN")
            yield* other("LOCK TABLE causeway.entries IN ACCESS EXCLUSIVE MODE")
            const reads = Array.from({ length: 10 }, () => Effect.asVoid(started.store.get(namespace, "k")))
            const outcomes = yield* Effect.all([...reads, Effect.asVoid(put(started, "k", 2))].map(Effect.either), {
              concurrency: "unbounded"
            })
            expect(outcomes.every(isUnavailable)).toBe(true)
            yield* other("ROLLBACK")
          })
        )
        yield* ready(started)
        expect(Option.isSome(yield* started.store.get(namespace, "k"))).toBe(true)
      }).pipe(Effect.provide(quiet))
  )

  it.scopedLive(
    "sessions have time-outs, flush what they commit and read what is committed, whatever their role is set to",
    () =>
      Effect.gen(function* () {
        const url = yield* Effect.promise(() => createDatabase())
        const name = new URL(url).pathname.slice(1)
        yield* Effect.promise(() =>
          execute(
            url,
            `ALTER DATABASE ${name} SET synchronous_commit = off`,
            `ALTER DATABASE ${name} SET default_transaction_isolation = 'serializable'`
          )
        )
        const pool = yield* Connections.make({
          url: Redacted.make(url),
          isPooled: false,
          max: 1,
          statementTimeout: 1900
        })
        const settings = [
          "statement_timeout",
          "lock_timeout",
          "idle_in_transaction_session_timeout",
          "synchronous_commit",
          "transaction_isolation"
        ]
        const [row] = yield* pool.read(
          { name: "settings", text: `SELECT ${settings.map(setting => `current_setting('${setting}')`).join(", ")}` },
          [],
          rows => rows
        )
        expect(row).toEqual(["1900ms", "1500ms", "5s", "on", "read committed"])
        const started = yield* node(optionsOf(url))
        expect(yield* put(started, "k", 1)).toMatchObject({ lastSeq: 1 })
      })
  )

  it.scopedLive("a password is in no error and in no log", () =>
    Effect.gen(function* () {
      const hba = join(inject("clusters"), `hba-${process.pid}.conf`)
      writeFileSync(hba, "host all keeper 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n", {
        mode: 0o644
      })
      const database = yield* server({ hba_file: hba })
      const url = yield* Effect.promise(() => createDatabase(database))
      yield* Effect.promise(() => execute(url, "CREATE ROLE keeper LOGIN PASSWORD 'other'"))
      const { layer, lines } = logged()
      const secret = new URL(url)
      secret.username = "keeper"
      secret.password = "sesame"
      const outcome = yield* Effect.gen(function* () {
        const started = yield* node(optionsOf(secret.href))
        return yield* Effect.either(put(started, "k", 1))
      }).pipe(Effect.scoped, Effect.provide(layer))
      expect(isUnavailable(outcome)).toBe(true)
      expect(lines.join()).toContain("password authentication failed")
      expect(lines.join() + JSON.stringify(outcome)).not.toContain("sesame")
    })
  )

  it.scopedLive("a standby is not read from, and when it is promoted the log has another epoch", () =>
    Effect.gen(function* () {
      const database = yield* server({})
      const url = yield* Effect.promise(() => createDatabase(database))
      const started = yield* node(optionsOf(url))
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
      yield* Effect.promise(() => execute(url, "SELECT pg_promote()"))
      yield* ready(started)
      yield* Fiber.join(waiting)
      const after = yield* epochs
      expect(after.epoch).not.toBe(before.epoch)
      expect(after.history).not.toBe(before.history)
    }).pipe(Effect.provide(quiet))
  )

  it.scopedLive("a database that becomes part of another cluster has another epoch, and so it has on demand", () =>
    Effect.gen(function* () {
      const url = yield* Effect.promise(() => createDatabase())
      const proxy = yield* Proxy.make(url)
      const started = yield* node(optionsOf(proxy.url))
      const epoch = Effect.map(started.log.read({ after: 0, limit: 1, tenant: "" }), page => page.epoch)
      const first = yield* epoch
      yield* Effect.promise(() => proxy.cut(false))
      yield* ready(started)
      expect(yield* epoch).toBe(first)
      // As a dump has it that is restored elsewhere; connections have ended by then.
      yield* Effect.promise(() => execute(url, "UPDATE causeway.log SET system_identifier = 'another'"))
      yield* Effect.promise(() => proxy.cut(false))
      yield* ready(started)
      const second = yield* epoch
      expect(second).not.toBe(first)
      yield* Effect.promise(() => execute(url, "SELECT causeway.renew_epoch()"))
      expect([first, second]).not.toContain(yield* epoch)
    }).pipe(Effect.provide(quiet))
  )

  it.scopedLive("a role that may not know the timeline is served, with a warning", () =>
    Effect.gen(function* () {
      const url = yield* Effect.promise(() => createDatabase())
      const role = `limited_${process.pid}`
      const name = new URL(url).pathname.slice(1)
      yield* Effect.promise(() =>
        execute(
          url,
          `CREATE ROLE ${role} LOGIN`,
          `GRANT CREATE ON DATABASE ${name} TO ${role}`,
          "REVOKE EXECUTE ON FUNCTION pg_walfile_name(pg_lsn) FROM PUBLIC"
        )
      )
      const { layer, lines } = logged()
      const limited = new URL(url)
      limited.username = role
      yield* Effect.gen(function* () {
        const started = yield* node(optionsOf(limited.href))
        yield* put(started, "k", 1)
        expect(yield* records(started)).toHaveLength(1)
      }).pipe(Effect.scoped, Effect.provide(layer))
      expect(lines.join()).toContain("does not change the epoch")
    })
  )

  const refusal = (url: string) =>
    Effect.map(Effect.exit(Effect.scoped(node(optionsOf(url)))), exit =>
      Exit.isFailure(exit) && exit.cause._tag === "Fail" ? exit.cause.error.message : "started"
    )

  it.scopedLive("a schema of a newer version is refused, and left as it is", () =>
    Effect.gen(function* () {
      const url = yield* Effect.promise(() => createDatabase())
      yield* Effect.scoped(node(optionsOf(url)))
      yield* Effect.promise(() => execute(url, "INSERT INTO causeway.migrations (version, name) VALUES (99, 'future')"))
      expect(yield* refusal(url)).toBe(
        `The store in the database has schema 99, and this version of causeway knows schemas up to ${migrations.length}: ` +
          "it was written by a newer version."
      )
    })
  )

  it.scopedLive("a database of another encoding is refused", () =>
    Effect.gen(function* () {
      const url = yield* Effect.promise(() => createDatabase())
      const name = `ascii_${process.pid}`
      yield* Effect.promise(() =>
        execute(url, `CREATE DATABASE ${name} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0`)
      )
      expect(yield* refusal(url.replace(/[^/]+$/, name))).toContain("has the encoding SQL_ASCII")
    })
  )

  it.scopedLive("limits that let names outgrow an index are refused, and the longest that are allowed fit", () =>
    Effect.gen(function* () {
      const url = yield* Effect.promise(() => createDatabase())
      const limits = { ...(yield* Limits), namespaceBytes: 660, keyBytes: 2000 }
      const tooLong = yield* Effect.exit(
        Effect.scoped(node(optionsOf(url))).pipe(Effect.provideService(Limits, { ...limits, keyBytes: 2001 }))
      )
      expect(String(tooLong)).toContain("LIMIT_KEY_BYTES (2001)")
      const started = yield* Effect.provideService(node(optionsOf(url)), Limits, limits)
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
  )
})
