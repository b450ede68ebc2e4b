import { cpSync, existsSync, readdirSync, statSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import Database from "better-sqlite3"
import { Effect, Exit, FastCheck as fc, Layer, Logger, Option, TestClock } from "effect"
import { SessionEvents } from "../../src/Gateway/SessionEvents.ts"
import { type ChangeLog, HistoryTrimmed } from "../../src/Kv/ChangeLog.ts"
import { Store } from "../../src/Kv/Store.ts"
import * as Backends from "../../src/Storage/Backends.ts"
import { tables } from "../../src/Storage/StoreCopy/Tables.ts"
import * as StoreCopy from "../../src/Storage/StoreCopy.ts"
import { createDatabase, execute, nodeLayer, optionsOf } from "../postgres/Databases.ts"
import { reasonToSkip } from "../postgres/Server.ts"
import {
  expireAll,
  feed,
  keys,
  lastSeq,
  list,
  put,
  remove,
  set,
  start,
  trimAll,
  write
} from "../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { database, files, refusal } from "./StoreCopy/Fixture.ts"

const quiet = Logger.remove(Logger.defaultLogger)

type Ports = Store | ChangeLog | SessionEvents

/** Uses the store in a directory, and closes it. */
const inSqlite =
  (directory: string) =>
  <A, E>(body: Effect.Effect<A, E, Ports>) =>
    Effect.provide(body, Layer.provide(Backends.sqlite({ directory, writer: "inline" }), quiet))

/** Uses the store in a database as a node does, and closes it. */
const inPostgres =
  (url: string) =>
  <A, E>(body: Effect.Effect<A, E, Ports>) =>
    Effect.provide(body, Layer.provide(nodeLayer(optionsOf(url)), quiet))

const newDatabase = Effect.promise(() => createDatabase())

const digests = (copied: StoreCopy.Copied) =>
  Object.fromEntries(copied.tables.map(({ digest, rows, table }) => [table, table === "histories" ? rows : digest]))

/** The sessions that tests write to, and the ids that clients give to requests there. */
const sessions = ["t/one", "t/two"]
const requests = ["a\u0000b", "😀", "r".repeat(256)]

/** The records after a position, read in pages, or that some of them were removed. */
const feedAfter = (after: number, limit?: number) =>
  Effect.catchAll(feed(after, limit), error =>
    error instanceof HistoryTrimmed ? Effect.succeed({ trimmedSeq: error.trimmedSeq }) : Effect.fail(error)
  )

/** Writes that a store remembers from the first time: of a tenant, and of an API key, which belongs to none. */
const keyed = Effect.forEach(["t", ""], tenant =>
  Effect.flatMap(Store, store =>
    store.commit({
      operations: [set("n", `keyed${tenant}`, 1, { expiresAt: start + 20_000 })],
      actor: "tester",
      idempotencyKey: { tenant, id: `id of ${tenant}`, digest: "digest" }
    })
  )
)

/** All that can be read of a store but epochs. */
const contentOf = Effect.gen(function* () {
  const { find, read, receipt, configuration, unfinished } = yield* SessionEvents
  const store = yield* Store
  const namespaces = ["n", "tenant:t/sessions", "m".repeat(512)]
  return {
    feeds: yield* Effect.forEach(Array.from({ length: (yield* lastSeq) + 1 }), (_, after) => feedAfter(after, 4)),
    lists: yield* Effect.forEach(namespaces, namespace => list(namespace)),
    counts: (yield* store.namespaces({ prefix: "", after: "", limit: 1000, tenant: "" })).namespaces,
    tenants: (yield* store.tenants({ prefix: "", limit: 1000, tenant: "" })).tenants,
    unfinished: yield* unfinished,
    remembered: (yield* keyed).map(({ isReplay, lastSeq, timestamp }) => ({ isReplay, lastSeq, timestamp })),
    sessions: yield* Effect.forEach(sessions, session =>
      Effect.all({
        history: Effect.map(
          find(session),
          Option.map(({ epoch: _, ...history }) => history)
        ),
        events: Effect.map(
          read(session, 0, 1000),
          Option.map(({ events }) => events)
        ),
        configuration: configuration(session),
        receipts: Effect.forEach(requests, id => receipt(session, id))
      })
    )
  }
})

/** Writes something of each kind. */
const fill = Effect.gen(function* () {
  yield* put("n", "a", 1)
  yield* put("n", "gone", "soon")
  yield* remove("n", "gone")
  yield* keyed
  yield* put("n", "due", null, { expiresAt: start + 10_000 })
  const events = yield* SessionEvents
  const { epoch } = yield* events.open("t/one", "e1")
  yield* events.append({ session: "t/one", epoch, after: 0, timestamp: 1, texts: ["{}", "[]"], recoveryState: "{}" })
  yield* events.configure("t/one", { environment: '{"A":"b"}', deployment: null })
})

/** One step of a random history. */
type Step =
  | { readonly do: "write"; readonly key: string; readonly value: unknown; readonly ttl: number | null }
  | { readonly do: "delete" | "trim" | "expire"; readonly key: string }
  | { readonly do: "append"; readonly session: string; readonly texts: ReadonlyArray<string>; readonly request: string }
  | { readonly do: "configure"; readonly session: string; readonly environment: string | null }

const key = fc.constantFrom("a", "b", "😀", "\uff5e", "'%_", "k".repeat(1024))
const session = fc.constantFrom(...sessions)

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant<"write">("write"),
      key,
      value: fc.oneof(fc.jsonValue(), fc.constantFrom("a\u0000b", "\ud800", { "": [1e300, -0] })),
      ttl: fc.option(fc.integer({ min: 1, max: 20 }))
    })
  },
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constantFrom<"delete" | "trim" | "expire">("delete", "trim", "expire"), key })
  },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant<"append">("append"),
      session,
      texts: fc.array(
        fc.string({ unit: "grapheme" }).map(text => JSON.stringify(text)),
        { maxLength: 3 }
      ),
      request: fc.constantFrom(...requests)
    })
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant<"configure">("configure"),
      session,
      environment: fc.option(fc.constant('{"KEY":"\\u0000"}'))
    })
  }
)

const perform = (step: Step, now: number) =>
  Effect.gen(function* () {
    yield* TestClock.setTime(now)
    const events = yield* SessionEvents
    switch (step.do) {
      case "write": {
        const options = step.ttl === null ? {} : { expiresAt: now + step.ttl }
        const namespaces = ["n", "tenant:t/sessions", "m".repeat(512)]
        return yield* write(namespaces.map(namespace => set(namespace, step.key, step.value, options)))
      }
      case "delete":
        return yield* remove("n", step.key)
      case "expire":
        return yield* expireAll
      case "trim":
        return yield* trimAll(30)
      case "append": {
        const { epoch, headSeq } = yield* events.open(step.session, `epoch of ${step.session}`)
        return yield* events.append({
          ...{ session: step.session, epoch, after: headSeq, timestamp: now, texts: step.texts },
          recoveryState: step.texts[0] ?? null,
          receipt: { id: step.request, digest: "d", turnId: step.texts.length === 0 ? null : "turn" }
        })
      }
      case "configure":
        return yield* events.configure(step.session, { environment: step.environment, deployment: null })
    }
  })

describe.skipIf(reasonToSkip !== undefined)(`Copies of stores ${reasonToSkip ?? ""}`, () => {
  it.scoped("name each table and each column of both schemas", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      const url = yield* newDatabase
      yield* inSqlite(directory)(Effect.void)
      yield* inPostgres(url)(Effect.void)
      const named = (database: "kv" | "sessions") =>
        tables
          .filter(({ sqlite }) => sqlite.database === database)
          .flatMap(({ columns, name, sqlite: { derived = [], names = {} } }) =>
            [...columns.map(([column]) => names[column] ?? column), ...derived.map(({ name }) => name)].map(
              column => `${name}.${column}`
            )
          )
      // SQLite has its own row ids.
      const own = ["events.id", "receipts.id", "launch_configurations.id", "metadata.name", "metadata.value"]
      // The target counts them.
      own.push("namespaces.namespace", "namespaces.entries", "tenants.tenant", "tenants.namespaces", "tenants.entries")
      for (const name of ["kv", "sessions"] as const) {
        const db = new Database(join(directory, `${name}.db`))
        const columns = db
          .prepare<[], string>(
            `SELECT t.name || '.' || c.name FROM sqlite_schema t, pragma_table_info(t.name) c
             WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%' AND t.name NOT LIKE 'effect_%'`
          )
          .pluck()
          .all()
        db.close()
        expect(columns.filter(column => !own.includes(column)).sort()).toEqual(named(name).sort())
      }
      const rows = yield* Effect.promise(() =>
        execute(url, "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'causeway'")
      )
      const columns = rows.map(({ column_name, table_name }) => `${table_name}.${column_name}`)
      // What belongs to the database or to nodes, and what the database makes.
      const notCopied =
        /^(?:log|commits|nodes|migrations|(?:base_)?(?:namespaces|tenants)|count_changes|positions)\.|^(?:changes\.tenant|histories\.(?:owner|token|database_epoch)|receipts\.place)$/
      expect(columns.filter(column => !notCopied.test(column)).sort()).toEqual(
        tables.flatMap(({ columns, name }) => columns.map(([column]) => `${name}.${column}`)).sort()
      )
    })
  )

  const runs = Number(process.env.SOAK ?? 1) * 2
  it.scoped(
    "keep all that random histories leave, to PostgreSQL and back",
    () =>
      Effect.gen(function* () {
        const runtime = yield* Effect.runtime()
        const check = (steps: ReadonlyArray<Step>) =>
          Effect.gen(function* () {
            const [first, last] = [yield* temporaryDirectory, yield* temporaryDirectory]
            const url = yield* newDatabase
            yield* TestClock.setTime(start)
            const before = yield* inSqlite(first)(
              Effect.zipRight(
                Effect.zipRight(
                  fill,
                  Effect.forEach(steps, (step, index) => perform(step, start + 10 * index))
                ),
                contentOf
              )
            )
            const there = yield* StoreCopy.copy({ from: files(first), to: database(url) })
            expect(yield* inPostgres(url)(contentOf)).toEqual(before)
            const back = yield* StoreCopy.copy({ from: database(url), to: files(last) })
            expect(digests(back)).toEqual(digests(there))
            expect(yield* inSqlite(last)(contentOf)).toEqual(before)
            // Both continue alike: versions after tombstones, and numbers.
            const next = Effect.zipRight(write(["a", "b", "😀"].map(key => set("n", key, 2))), contentOf)
            const [one, other] = [yield* inSqlite(first)(next), yield* inSqlite(last)(next)]
            expect(other).toEqual(one)
          }).pipe(Effect.scoped)
        yield* Effect.promise(() =>
          fc.assert(
            fc.asyncProperty(fc.array(step, { maxLength: 30, size: "max" }), steps =>
              Effect.runPromise(Effect.provide(check(steps), runtime))
            ),
            { numRuns: runs }
          )
        )
      }),
    { timeout: 600_000 * Math.max(1, runs / 4) }
  )

  it.scoped("take large values in pages, and continue the numbers of histories", () =>
    Effect.gen(function* () {
      const [first, last] = [yield* temporaryDirectory, yield* temporaryDirectory]
      const url = yield* newDatabase
      const large = "😀".repeat(2 * 1024 * 1024)
      yield* inSqlite(first)(
        Effect.gen(function* () {
          yield* fill
          yield* put("n", "large", large)
          yield* write(Array.from({ length: 4500 }, (_, n) => set("n", `k${n}`, "x".repeat(n % 50))))
        })
      )
      const pages: Array<StoreCopy.Progress> = []
      const report = (progress: StoreCopy.Progress) => Effect.sync(() => pages.push(progress)).pipe(Effect.asVoid)
      yield* StoreCopy.copy({ from: files(first), to: database(url), report })
      const entries = pages.filter(({ phase, table }) => phase === "copy" && table === "entries")
      expect(entries.length).toBeGreaterThan(2)
      expect(pages.at(-1)).toMatchObject({ phase: "verify", rows: pages[0]!.totalRows })
      yield* inPostgres(url)(
        Effect.gen(function* () {
          const { open } = yield* SessionEvents
          yield* open("t/two", "e2")
        })
      )
      yield* StoreCopy.copy({ from: database(url), to: files(last) })
      yield* inSqlite(last)(
        Effect.gen(function* () {
          const found = Option.getOrThrow(yield* Effect.flatMap(Store, store => store.get("n", "large")))
          expect(found.value === JSON.stringify(large)).toBe(true)
          expect((yield* keys("n")).length).toBe(4505)
          const { find } = yield* SessionEvents
          expect(Option.isSome(yield* find("t/two"))).toBe(true)
        })
      )
    })
  )

  it.scoped("give the log and the histories of the target other epochs", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      const url = yield* newDatabase
      const epochs = Effect.gen(function* () {
        const page = yield* Effect.flatMap(Store, store =>
          store.list({ namespace: "n", prefix: "", after: "", limit: 1 })
        )
        const history = yield* Effect.flatMap(SessionEvents, ({ find }) => find("t/one"))
        return [page.epoch, Option.getOrThrow(history).epoch]
      })
      const before = yield* inSqlite(directory)(Effect.zipRight(fill, epochs))
      const { epoch } = yield* StoreCopy.copy({ from: files(directory), to: database(url) })
      const after = yield* inPostgres(url)(epochs)
      expect(after[0]).toBe(epoch)
      expect(new Set([...before, ...after]).size).toBe(4)
      expect(yield* inPostgres(url)(epochs)).toEqual(after)
      // The source is as it was.
      expect(yield* inSqlite(directory)(epochs)).toEqual(before)
    })
  )

  it.scoped("into a database that was emptied set its positions back, which may be beyond the copied records", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      const url = yield* newDatabase
      yield* inSqlite(directory)(fill)
      yield* inPostgres(url)(Effect.void)
      const query = (...texts: ReadonlyArray<string>) => Effect.promise(() => execute(url, ...texts))
      yield* query("UPDATE causeway.positions SET up_to = 1e15", "DELETE FROM causeway.nodes")
      yield* StoreCopy.copy({ from: files(directory), to: database(url) })
      const newest = `SELECT DISTINCT ON (name) name, up_to::text FROM causeway.positions
        WHERE name IN ('commits', 'expiry', 'idempotency') ORDER BY name, id DESC`
      expect(yield* query(newest)).toEqual(["commits", "expiry", "idempotency"].map(name => ({ name, up_to: "0" })))
    })
  )

  it.scoped("are refused where the target is not empty, and change nothing there", () =>
    Effect.gen(function* () {
      const [directory, other] = [yield* temporaryDirectory, yield* temporaryDirectory]
      const [url, empty] = [yield* newDatabase, yield* newDatabase]
      yield* inSqlite(directory)(fill)
      yield* inSqlite(other)(put("n", "other", 1))
      yield* inPostgres(url)(put("n", "other", 1))
      expect(yield* refusal(StoreCopy.copy({ from: files(directory), to: database(url) }))).toContain("is not empty")
      expect(yield* refusal(StoreCopy.copy({ from: database(url), to: files(directory) }))).toContain("is not empty")
      // The wrong way round.
      expect(yield* refusal(StoreCopy.copy({ from: database(empty), to: files(directory) }))).toContain("has no store")
      const missing = join(directory, "missing")
      expect(yield* refusal(StoreCopy.copy({ from: files(missing), to: database(empty) }))).toContain("has no store")
      expect(existsSync(missing)).toBe(false)
      expect(yield* refusal(StoreCopy.copy({ from: files(directory), to: files(other) }))).toContain("Both stores")
      expect(yield* refusal(StoreCopy.copy({ from: database(url), to: database(empty) }))).toContain("Both stores")
      expect(yield* inPostgres(url)(lastSeq)).toBe(1)
      expect(yield* inSqlite(directory)(keys("n"))).toEqual(["a", "due", "keyed", "keyedt"])
      // Sessions without entries are a store, too.
      const onlySessions = yield* temporaryDirectory
      yield* inSqlite(onlySessions)(Effect.flatMap(SessionEvents, ({ open }) => open("t/one", "e")))
      expect(yield* refusal(StoreCopy.copy({ from: database(url), to: files(onlySessions) }))).toContain("is not empty")
      // An existing empty store is a valid target.
      yield* inPostgres(empty)(Effect.void)
      yield* StoreCopy.copy({ from: files(directory), to: database(empty) })
    })
  )

  it.scopedLive("are refused while a process serves either store", () =>
    Effect.gen(function* () {
      const [directory, target] = [yield* temporaryDirectory, yield* temporaryDirectory]
      const [url, empty] = [yield* newDatabase, yield* newDatabase]
      yield* inSqlite(directory)(fill)
      const inUse = <A>(copying: Effect.Effect<A, StoreCopy.StoreCopyRefused | StoreCopy.StoreCopyFailed>) =>
        refusal(copying)
      yield* inSqlite(directory)(
        Effect.map(inUse(StoreCopy.copy({ from: files(directory), to: database(empty) })), message =>
          expect(message).toContain("is locked")
        )
      )
      yield* inSqlite(target)(
        Effect.map(inUse(StoreCopy.copy({ from: database(url), to: files(target) })), message =>
          expect(message).toContain("has no store")
        )
      )
      yield* inPostgres(url)(
        Effect.gen(function* () {
          const asTarget = StoreCopy.copy({ from: files(directory), to: database(url) })
          expect(yield* inUse(asTarget)).toContain("is served by a node")
          const asSource = StoreCopy.copy({ from: database(url), to: files(target) })
          expect(yield* inUse(asSource)).toContain("is served by a node")
        })
      )
      yield* StoreCopy.copy({ from: files(directory), to: database(url) })
      yield* inSqlite(target)(
        Effect.map(inUse(StoreCopy.copy({ from: database(url), to: files(target) })), message =>
          expect(message).toContain("is locked")
        )
      )
    })
  )

  it.scoped("keep a node that has no lease from writing to the source", () =>
    Effect.gen(function* () {
      const [directory, target] = [yield* temporaryDirectory, yield* temporaryDirectory]
      const url = yield* newDatabase
      yield* inSqlite(directory)(fill)
      yield* StoreCopy.copy({ from: files(directory), to: database(url) })
      const writes = [
        "SELECT causeway.expire(9007199254740991, 10)",
        "DELETE FROM causeway.histories",
        "DELETE FROM causeway.launch_configurations",
        "SELECT causeway.renew_lease(gen_random_uuid(), 1000, true)"
      ]
      let refused: ReadonlyArray<unknown> = []
      const report = () =>
        refused.length > 0
          ? Effect.void
          : Effect.gen(function* () {
              refused = yield* Effect.forEach(writes, text =>
                Effect.flip(
                  Effect.tryPromise({
                    try: () => execute(url, "SET lock_timeout = 20", text),
                    catch: error => (error as { code?: string }).code
                  })
                )
              ).pipe(Effect.orDie)
            })
      yield* StoreCopy.copy({ from: database(url), to: files(target), report })
      expect(refused).toEqual(writes.map(() => "55P03"))
    })
  )

  it.scoped("are refused for a schema that is newer than this version knows", () =>
    Effect.gen(function* () {
      const [directory, target] = [yield* temporaryDirectory, yield* temporaryDirectory]
      const url = yield* newDatabase
      yield* inSqlite(directory)(fill)
      yield* inPostgres(url)(put("n", "a", 1))
      const toNext = () => {
        const db = new Database(join(directory, "kv.db"))
        db.pragma("user_version = 99")
        db.close()
      }
      toNext()
      yield* Effect.promise(() => execute(url, "INSERT INTO causeway.migrations (version, name) VALUES (99, 'next')"))
      expect(yield* refusal(StoreCopy.copy({ from: files(directory), to: database(url) }))).toContain("schema 99")
      expect(yield* refusal(StoreCopy.copy({ from: database(url), to: files(target) }))).toContain("schema 99")
      expect(readdirSync(target)).toEqual([])
    })
  )

  /** Ends a copy after so many pages. */
  const endAfter = (pages: number, onEnd: Effect.Effect<void> = Effect.void) => {
    let left = pages
    return () => (--left > 0 ? Effect.void : Effect.zipRight(onEnd, Effect.interrupt))
  }

  it.scoped("into PostgreSQL that end halfway leave a store that no node serves, and start again", () =>
    Effect.gen(function* () {
      const [directory, other] = [yield* temporaryDirectory, yield* temporaryDirectory]
      const url = yield* newDatabase
      yield* inSqlite(directory)(fill)
      yield* inSqlite(other)(fill)
      const content = yield* inSqlite(directory)(contentOf)
      for (const pages of [3]) {
        const copying = StoreCopy.copy({ from: files(directory), to: database(url), report: endAfter(pages) })
        expect(Exit.isInterrupted(yield* Effect.exit(copying))).toBe(true)
        const node = yield* Effect.flip(inPostgres(url)(lastSeq))
        expect(String(node)).toContain("run causeway migrate-store again")
      }
      // Not with another source, and not as a source.
      expect(yield* refusal(StoreCopy.copy({ from: files(other), to: database(url) }))).toContain("another store")
      const asSource = StoreCopy.copy({ from: database(url), to: files(join(other, "target")) })
      expect(yield* refusal(asSource)).toContain("not finished")
      // What one process copies, a second one does not.
      let second: string | undefined
      const { isRestarted } = yield* StoreCopy.copy({
        from: files(directory),
        to: database(url),
        report: () =>
          second !== undefined
            ? Effect.void
            : Effect.gen(function* () {
                const copy = yield* temporaryDirectory
                cpSync(directory, copy, { recursive: true, filter: file => !file.endsWith(".lock") })
                second = String(yield* Effect.exit(StoreCopy.copy({ from: files(copy), to: database(url) })))
              }).pipe(Effect.scoped)
      })
      expect(isRestarted).toBe(true)
      expect(second).toContain("Another process")
      expect(yield* inPostgres(url)(contentOf)).toEqual(content)
    })
  )

  it.scoped("into SQLite that are killed halfway leave a store that no process serves, and start again", () =>
    Effect.gen(function* () {
      const [directory, target, killed] = [
        yield* temporaryDirectory,
        yield* temporaryDirectory,
        yield* temporaryDirectory
      ]
      const [url, other] = [yield* newDatabase, yield* newDatabase]
      yield* inSqlite(directory)(fill)
      yield* StoreCopy.copy({ from: files(directory), to: database(url) })
      const content = yield* inPostgres(url)(contentOf)
      // An empty store exists before.
      yield* inSqlite(target)(Effect.void)
      // The files as a process leaves them that is killed there.
      const leave = Effect.sync(() =>
        cpSync(target, killed, { recursive: true, filter: file => statSync(file).isDirectory() || !/-shm$/.test(file) })
      )
      for (const pages of [4]) {
        const copying = StoreCopy.copy({ from: database(url), to: files(target), report: endAfter(pages, leave) })
        expect(Exit.isInterrupted(yield* Effect.exit(copying))).toBe(true)
        for (const place of [target, killed]) {
          expect(String(yield* Effect.flip(inSqlite(place)(lastSeq)))).toContain("run causeway migrate-store again")
        }
      }
      yield* inPostgres(other)(put("n", "other", 1))
      expect(yield* refusal(StoreCopy.copy({ from: database(other), to: files(killed) }))).toContain("another store")
      for (const place of [target, killed]) {
        const { isRestarted } = yield* StoreCopy.copy({ from: database(url), to: files(place) })
        expect(isRestarted).toBe(true)
        expect(yield* inSqlite(place)(contentOf)).toEqual(content)
      }
    })
  )

  it.scoped("notice what the target does not hold as it was read", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      const [url, target] = [yield* newDatabase, yield* newDatabase]
      yield* inSqlite(directory)(fill)
      yield* inPostgres(url)(Effect.void)
      // A disk that changes a value, and a name that no index of PostgreSQL holds.
      yield* Effect.promise(() =>
        execute(
          url,
          `CREATE FUNCTION causeway.spoil() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN NEW.value := replace(NEW.value, '1', '2'); RETURN NEW; END $$`,
          "CREATE TRIGGER spoil BEFORE INSERT ON causeway.entries FOR EACH ROW EXECUTE FUNCTION causeway.spoil()"
        )
      )
      const spoilt = yield* Effect.flip(StoreCopy.copy({ from: files(directory), to: database(url) }))
      expect(spoilt).toBeInstanceOf(StoreCopy.StoreCopyFailed)
      expect(spoilt.message).toMatch(/differs from the source in entries/)
      yield* inSqlite(directory)(put("n".repeat(1500), "k".repeat(1500), 1))
      const long = yield* Effect.flip(StoreCopy.copy({ from: files(directory), to: database(target) }))
      expect(long.message).toContain("have 3000 bytes")
    })
  )
})
