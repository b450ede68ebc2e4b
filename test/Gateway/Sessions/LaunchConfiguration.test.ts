/**
 * What instances are made from: kept in the session database, taken out of old records, and asked for where it was
 * lost.
 */
import { existsSync, readFileSync, rmSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import Database from "better-sqlite3"
import { Context, Effect, Fiber, Layer, Option, Redacted } from "effect"
import { deploymentBytes, environmentBytes } from "../../../src/Gateway/Protocol/Limits.ts"
import { SessionEvents } from "../../../src/Gateway/SessionEvents.ts"
import { namespaceOf } from "../../../src/Gateway/Sessions/SessionRecord.ts"
import { decode } from "../../../src/Kv/Change.ts"
import { ChangeLog } from "../../../src/Kv/ChangeLog.ts"
import { Store } from "../../../src/Kv/Store.ts"
import { fileOf } from "../../../src/Storage/Sqlite/Database/Connection.ts"
import { type Migration, migrate } from "../../../src/Storage/Sqlite/Database/Migrations.ts"
import { format } from "../../../src/Storage/Sqlite/Kv/Writer.ts"
import * as EventsInFile from "../../../src/Storage/Sqlite/SessionEvents.ts"
import * as Sqlite from "../../../src/Storage/Sqlite.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"
import { alice, breathe, inMemory, make, type Stored } from "../Fixture.ts"

/** As the service has it: the store first, which may have something to move to the session database. */
const inDirectory = (directory: string): Layer.Layer<Stored, unknown> =>
  EventsInFile.layer({ directory, writer: "inline" }).pipe(
    Layer.provideMerge(Sqlite.layer({ directory, writer: "inline" }))
  )

const marker = "MARK-OF-WHAT-NO-CLIENT-READS"
const environment = { PASSWORD: marker }
const deployment = { region: marker, replicas: 2 }

const asked = (simulator: { readonly state: Effect.Effect<unknown> }) =>
  Effect.map(simulator.state, state => JSON.parse(JSON.stringify(state)).instances)

describe("launch configurations", () => {
  it.scopedLive("are in no record and no change, and reach the platform after a restart", () =>
    Effect.gen(function* () {
      const { simulator, start, stored } = yield* make()
      const first = yield* start
      const { id } = yield* first.sessions.create(alice, { agentType: "echo", environment, deployment })
      yield* first.stop
      const { sessions } = yield* start
      yield* sessions.start(alice, id)
      expect(yield* asked(simulator)).toMatchObject([{ environment, deployment }])
      const { entries } = yield* Context.get(stored, Store).list({
        namespace: namespaceOf("acme"),
        prefix: "",
        after: "",
        limit: 10
      })
      const changes = yield* Context.get(stored, ChangeLog).read({ after: 0, limit: 1000, tenant: "" })
      expect(entries).toHaveLength(1)
      expect(JSON.stringify([entries, changes, yield* sessions.list(alice)])).not.toContain(marker)
      yield* sessions.remove(alice, id)
      expect(yield* Context.get(stored, SessionEvents).configuration(`acme/${id}`)).toEqual({
        environment: null,
        deployment: null
      })
    })
  )

  for (const call of ["configuration", "configure"] as const) {
    it.scopedLive(`that are given while their session is deleted leave nothing behind (during ${call})`, () =>
      Effect.gen(function* () {
        const begun = yield* Effect.makeLatch(false)
        const gate = yield* Effect.makeLatch(true)
        const slow = Layer.map(inMemory, context => {
          const events = Context.get(context, SessionEvents)
          const delayed = <Args extends ReadonlyArray<unknown>, A, E>(f: (...args: Args) => Effect.Effect<A, E>) => {
            return (...args: Args) => Effect.tap(f(...args), () => Effect.zipRight(begun.open, gate.await))
          }
          return Context.add(context, SessionEvents, {
            ...events,
            ...(call === "configure"
              ? { configure: delayed(events.configure) }
              : { configuration: delayed(events.configuration) })
          })
        })
        const { start } = yield* make({ stored: slow, settings: { secretBytes: 1000 } })
        const { sessions } = yield* start
        const { id } = yield* sessions.create(alice, { agentType: "echo" })
        // It is in memory from here on.
        yield* sessions.get(alice, id)
        yield* gate.close
        yield* begun.close
        const secrets = { KEY: Redacted.make("s".repeat(800)) }
        const starting = yield* Effect.fork(Effect.flip(sessions.start(alice, id, { environment, secrets })))
        yield* begun.await
        const removing = yield* Effect.fork(sessions.remove(alice, id))
        while (Option.isSome(yield* Effect.option(sessions.get(alice, id)))) yield* breathe
        yield* gate.open
        yield* Fiber.join(removing)
        expect(yield* Fiber.join(starting)).toMatchObject({ _tag: "SessionNotFound" })
        yield* sessions.create(alice, { agentType: "echo", secrets })
      })
    )
  }

  it.scopedLive("have limits, wherever they are given", () =>
    Effect.gen(function* () {
      const { start, stored } = yield* make()
      const { sessions } = yield* start
      const text = (bytes: number) => "ä".repeat(bytes / 2)
      const tooMuch = {
        environment: { A: text(environmentBytes) },
        secrets: {
          environment: { A: text(environmentBytes / 2) },
          secrets: { B: Redacted.make(text(environmentBytes / 2)) }
        },
        deployment: { deployment: text(deploymentBytes) }
      }
      const { id } = yield* sessions.create(alice, {
        agentType: "echo",
        environment: { A: text(environmentBytes / 2) }
      })
      for (const given of [{ environment: tooMuch.environment }, tooMuch.secrets, tooMuch.deployment]) {
        const refused = { _tag: "SessionTooLarge", message: expect.stringMatching(/ the limit is 65536$/) }
        expect(yield* Effect.flip(sessions.create(alice, { agentType: "echo", ...given }))).toMatchObject(refused)
        expect(yield* Effect.flip(sessions.start(alice, id, given))).toMatchObject(refused)
      }
      // What it has already counts too.
      const { secrets } = tooMuch.secrets
      expect(yield* Effect.flip(sessions.start(alice, id, { secrets }))).toMatchObject({ _tag: "SessionTooLarge" })
      yield* sessions.start(alice, id, { secrets, environment: {}, deployment: text(deploymentBytes - 2) })
      const kept = yield* Context.get(stored, SessionEvents).configuration(`acme/${id}`)
      expect(kept).toEqual({ environment: null, deployment: JSON.stringify(text(deploymentBytes - 2)) })
      expect((yield* sessions.list(alice)).sessions).toHaveLength(1)
    })
  )

  it.scopedLive("are required again if they were lost, and a session without them is not started", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      const before = yield* Effect.scoped(
        Effect.gen(function* () {
          const { start } = yield* make({ stored: inDirectory(directory) })
          const { sessions } = yield* start
          const { id } = yield* sessions.create(alice, { agentType: "echo", environment, deployment })
          const plain = yield* sessions.create(alice, { agentType: "echo" })
          return { id, plain: plain.id }
        })
      )
      const { id, plain } = before
      for (const name of ["sessions.db", "sessions.db-wal"]) rmSync(join(directory, name), { force: true })
      const { simulator, start } = yield* make({ stored: inDirectory(directory) })
      const { sessions } = yield* start
      const missing = { missingConfiguration: ["environment", "deployment"] }
      const listed = (yield* sessions.list(alice)).sessions
      expect(listed.find(session => session.id === id)).toMatchObject(missing)
      expect(listed.find(session => session.id === plain)).not.toHaveProperty("missingConfiguration")
      expect(yield* sessions.get(alice, id)).toMatchObject(missing)
      const refused = {
        _tag: "SessionConflict",
        message:
          "The environment and the deployment of the session were lost with the session database. Give them again with start_session"
      }
      expect(yield* Effect.flip(sessions.start(alice, id))).toMatchObject(refused)
      expect(yield* Effect.flip(sessions.send(alice, id, "hello"))).toMatchObject(refused)
      expect(yield* Effect.flip(sessions.start(alice, id, { environment }))).toMatchObject({
        _tag: "SessionConflict",
        message: "The deployment of the session was lost with the session database. Give it again with start_session"
      })
      yield* sessions.start(alice, plain)
      yield* sessions.stop(alice, plain)
      const started = yield* sessions.start(alice, id, { deployment })
      expect(started).toMatchObject({ state: "active" })
      expect(started).not.toHaveProperty("missingConfiguration")
      expect(yield* asked(simulator)).toMatchObject([{ environment, deployment }])
    })
  )
})

/** A record as version 1 of the store's schema had it. */
const oldRecord = (id: string, more: Record<string, unknown>) =>
  JSON.stringify({
    ...{ id, tenant: "acme", agentType: "echo", title: "", state: "inactive", instanceId: null, createdAt: 1 },
    ...{ updatedAt: 1, epoch: "e", headSeq: 0, environment: {}, secretNames: [], titled: false },
    ...more
  })

const ids = ["a", "b", "c", "d"].map(digit => digit.repeat(36)) as [string, string, string, string]

/** A store of schema 1 with records of sessions, and with entries that look like some of them. */
const makeOld = (directory: string) =>
  Effect.gen(function* () {
    const { migrations } = yield* Effect.promise<{ readonly migrations: ReadonlyArray<Migration> }>(format.load)
    const database = fileOf(directory, format)
    yield* migrate(database, format.applicationId, migrations.slice(0, 1))
    const db = new Database(database)
    db.pragma("journal_mode = WAL")
    const insert = db.prepare(
      "INSERT INTO entries (namespace, key, version, updated_by, updated_at, value) VALUES (?, ?, ?, 'gateway', 1, ?)"
    )
    const log = db.prepare(
      `INSERT INTO changes (op, namespace, key, version, actor, timestamp, tenant, value)
       VALUES (?, ?, ?, ?, 'gateway', 1, 'acme', ?)`
    )
    const [full, plain, half, gone] = ids
    const values: Readonly<Record<string, string>> = {
      [full]: oldRecord(full, { environment, deployment }),
      [plain]: oldRecord(plain, { title: marker.toLowerCase() }),
      [half]: oldRecord(half, { deployment: "there" }),
      spoilt: oldRecord("another", { environment: { KEPT: "1" } }),
      deep: "[".repeat(1500) + "]".repeat(1500)
    }
    for (const [key, value] of Object.entries(values)) {
      insert.run("tenant:acme/sessions", key, 3, value)
      log.run("set", "tenant:acme/sessions", key, 1, value)
      log.run("set", "tenant:acme/sessions", key, 3, value)
    }
    log.run("set", "tenant:acme/sessions", gone, 1, oldRecord(gone, { environment }))
    log.run("delete", "tenant:acme/sessions", gone, 2, null)
    insert.run("tenant:acme/notes", full, 1, values[full])
    log.run("set", "tenant:acme/notes", full, 1, values[full])
    const outline = rowsOf(db)
    db.close()
    return { values, outline }
  })

const rowsOf = (db: Database.Database) => ({
  entries: db.prepare("SELECT namespace, key, version FROM entries ORDER BY 1, 2").raw().all(),
  changes: db.prepare("SELECT seq, op, namespace, key, version, value IS NULL FROM changes ORDER BY 1").raw().all()
})

describe("Records of earlier versions", () => {
  it.scopedLive("have their launch configurations moved to the session database, also from the change feed", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      const { outline, values } = yield* makeOld(directory)
      const [full, plain, half] = ids
      yield* Effect.scoped(
        Effect.gen(function* () {
          const { simulator, start, stored } = yield* make({ stored: inDirectory(directory) })
          const { sessions } = yield* start
          const { changes } = yield* Context.get(stored, ChangeLog).read({ after: 0, limit: 1000, tenant: "acme" })
          const ofSessions = changes.map(decode).filter(({ namespace }) => namespace === "tenant:acme/sessions")
          expect(ofSessions).toHaveLength(12)
          expect(JSON.stringify(ofSessions)).not.toContain(marker)
          const events = Context.get(stored, SessionEvents)
          expect(yield* events.configuration(`acme/${full}`)).toEqual({
            environment: JSON.stringify(environment),
            deployment: JSON.stringify(deployment)
          })
          expect(yield* events.configuration(`acme/${plain}`)).toEqual({ environment: null, deployment: null })
          expect(yield* events.configuration(`acme/${half}`)).toEqual({ environment: null, deployment: '"there"' })
          const { get } = Context.get(stored, Store)
          for (const key of ["spoilt", "deep"]) {
            expect((yield* Effect.flatten(get("tenant:acme/sessions", key))).value).toBe(values[key])
          }
          expect((yield* Effect.flatten(get("tenant:acme/notes", full))).value).toBe(values[full])
          expect((yield* sessions.list(alice)).sessions.map(({ id }) => id)).toEqual([half, plain, full])
          yield* sessions.start(alice, full)
          expect(yield* asked(simulator)).toMatchObject([{ environment, deployment }])
          yield* sessions.stop(alice, full)
        })
      )
      const db = new Database(join(directory, "kv.db"))
      expect(rowsOf(db).changes.slice(0, outline.changes.length)).toEqual(outline.changes)
      expect(rowsOf(db).entries.map(row => (row as ReadonlyArray<unknown>).slice(0, 2))).toEqual(
        outline.entries.map(row => (row as ReadonlyArray<unknown>).slice(0, 2))
      )
      db.exec("DELETE FROM entries WHERE namespace = 'tenant:acme/notes'")
      db.exec("DELETE FROM changes WHERE namespace = 'tenant:acme/notes'")
      db.close()
    })
  )

  it.scopedLive("leave nothing of them in the bytes of the file, and an interrupted move is repeated", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory
      const { outline } = yield* makeOld(directory)
      const file = join(directory, "kv.db")
      const old = new Database(file)
      old.exec("DELETE FROM entries WHERE namespace = 'tenant:acme/notes'")
      old.exec("DELETE FROM changes WHERE namespace = 'tenant:acme/notes'")
      expect(rowsOf(old).entries.length).toBeGreaterThan(0)
      // Another writer blocks the records after they were copied.
      old.exec("CREATE TRIGGER stop BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'stopped'); END")
      old.close()
      const refused = yield* Effect.flip(Effect.scoped(Layer.build(inDirectory(directory))))
      expect(String(refused)).toContain(`cannot be brought to schema ${format.schemaVersion}`)
      expect(existsSync(join(directory, "sessions.db"))).toBe(true)
      const again = new Database(file)
      expect(again.pragma("user_version", { simple: true })).toBe(1)
      expect(readFileSync(file).includes(marker)).toBe(true)
      again.exec("DROP TRIGGER stop")
      again.close()
      const context = yield* Layer.build(inDirectory(directory))
      const kept = yield* Context.get(context, SessionEvents).configuration(`acme/${ids[0]}`)
      expect(kept.environment).toBe(JSON.stringify(environment))
      expect(readFileSync(file).includes(marker)).toBe(false)
      const db = new Database(file, { readonly: true })
      expect(rowsOf(db).changes).toEqual(outline.changes.slice(0, -1))
      db.close()
    })
  )
})
