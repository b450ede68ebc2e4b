/** Copies of stores from SQLite to PostgreSQL and back: what they carry, and what they change. */
import { join } from "node:path"
import { expect, it } from "@effect/vitest"
import Database from "better-sqlite3"
import { Effect, FastCheck as fc, Option, TestClock } from "effect"
import { SessionEvents } from "../../src/Gateway/SessionEvents.ts"
import { Store } from "../../src/Kv/Store.ts"
import { pageBytes, pageRows, tables } from "../../src/Storage/StoreCopy/Tables.ts"
import * as StoreCopy from "../../src/Storage/StoreCopy.ts"
import { newDatabase, sql } from "../postgres/Databases.ts"
import { onPostgres } from "../postgres/Live.ts"
import { times } from "../Scale.ts"
import { expireAll, put, remove, set, start, trimAll, write } from "../suites/Store/Fixture.ts"
import { temporaryDirectory } from "../TemporaryDirectory.ts"
import { test } from "../Tests.ts"
import { contentOf, database, files, fill, inPostgres, inSqlite, requests, sessions } from "./StoreCopy/Fixture.ts"

const digests = (copied: StoreCopy.Copied) =>
  Object.fromEntries(copied.tables.map(({ digest, rows, table }) => [table, table === "histories" ? rows : digest]))

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

onPostgres("Copies of stores", () => {
  test.scoped("name each table and each column of both schemas", function* () {
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
    // They are a cache.
    own.push("checkpoints.history", "checkpoints.seq", "checkpoints.epoch", "checkpoints.text")
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
    const rows = yield* sql(
      url,
      "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'causeway'"
    )
    const columns = rows.map(({ column_name, table_name }) => `${table_name}.${column_name}`)
    // What belongs to the database or to nodes, and what the database makes.
    const notCopied =
      /^(?:log|commits|nodes|migrations|checkpoints|(?:base_)?(?:namespaces|tenants)|count_changes|positions)\.|^(?:changes\.tenant|histories\.(?:owner|token|database_epoch)|receipts\.place)$/
    expect(columns.filter(column => !notCopied.test(column)).sort()).toEqual(
      tables.flatMap(({ columns, name }) => columns.map(([column]) => `${name}.${column}`)).sort()
    )
  })

  const runs = times(2)

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

  test.scoped(
    "take large values and many events of one time in pages, and continue the numbers of histories",
    function* () {
      const [first, last] = [yield* temporaryDirectory, yield* temporaryDirectory]
      const url = yield* newDatabase
      const [session, timestamp] = ["t/one", start]
      const texts = Array.from({ length: pageRows + 2 }, (_, index) => `${index}`)
      const large = "😀".repeat(pageBytes / 2)
      const pages: Array<string> = []
      const report = ({ phase, table }: StoreCopy.Progress) => Effect.sync(() => void pages.push(`${phase} ${table}`))
      yield* inSqlite(first)(
        Effect.gen(function* () {
          const events = yield* SessionEvents
          const { epoch } = yield* events.open(session, "e1")
          yield* events.append({ session, epoch, after: 0, timestamp, texts, recoveryState: null })
          yield* Effect.forEach(["a", "b"], key => put("n", key, large))
        })
      )
      yield* StoreCopy.copy({ from: files(first), to: database(url), report })
      expect(pages.filter(page => page === "copy entries")).toHaveLength(2)
      yield* inPostgres(url)(Effect.flatMap(SessionEvents, ({ open }) => open("t/two", "e2")))
      yield* StoreCopy.copy({ from: database(url), to: files(last) })
      const found = yield* inSqlite(last)(
        Effect.flatMap(SessionEvents, events => Effect.flatten(events.read(session, 0, 2 * pageRows)))
      )
      expect(found.events.map(({ text }) => text)).toEqual(texts)
      const copied = yield* inSqlite(last)(Effect.flatMap(Store, store => store.get("n", "b")))
      expect(Option.getOrThrow(copied).value === JSON.stringify(large)).toBe(true)
    }
  )

  test.scoped("give the log and the histories of the target other epochs", function* () {
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

  test.scoped(
    "into a database that was emptied set its positions back, which may be beyond the copied records",
    function* () {
      const directory = yield* temporaryDirectory
      const url = yield* newDatabase
      yield* inSqlite(directory)(fill)
      yield* inPostgres(url)(Effect.void)
      const query = (...texts: ReadonlyArray<string>) => sql(url, ...texts)
      yield* query("UPDATE causeway.positions SET up_to = 1e15", "DELETE FROM causeway.nodes")
      yield* StoreCopy.copy({ from: files(directory), to: database(url) })
      const newest = `SELECT DISTINCT ON (name) name, up_to::text FROM causeway.positions
        WHERE name IN ('commits', 'events', 'expiry', 'idempotency') ORDER BY name, id DESC`
      expect(yield* query(newest)).toEqual(
        ["commits", "events", "expiry", "idempotency"].map(name => ({ name, up_to: "0" }))
      )
    }
  )

  test.scoped("notice what the target does not hold as it was read", function* () {
    const directory = yield* temporaryDirectory
    const [url, target] = [yield* newDatabase, yield* newDatabase]
    yield* inSqlite(directory)(fill)
    yield* inPostgres(url)(Effect.void)
    // A disk that changes a value, and a name that no index of PostgreSQL holds.
    yield* sql(
      url,
      `CREATE FUNCTION causeway.spoil() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN NEW.value := replace(NEW.value, '1', '2'); RETURN NEW; END $$`,
      "CREATE TRIGGER spoil BEFORE INSERT ON causeway.entries FOR EACH ROW EXECUTE FUNCTION causeway.spoil()"
    )
    const spoilt = yield* Effect.flip(StoreCopy.copy({ from: files(directory), to: database(url) }))
    expect(spoilt).toBeInstanceOf(StoreCopy.StoreCopyFailed)
    expect(spoilt.message).toMatch(/differs from the source in entries/)
    yield* inSqlite(directory)(put("n".repeat(1500), "k".repeat(1500), 1))
    const long = yield* Effect.flip(StoreCopy.copy({ from: files(directory), to: database(target) }))
    expect(long.message).toContain("have 3000 bytes")
  })
})
