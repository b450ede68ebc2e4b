/** The session event log of several nodes over one database: who owns a session, and what failures do. */
import { cpSync } from "node:fs"
import { join } from "node:path"
import { describe, expect, it } from "@effect/vitest"
import { Context, Duration, Effect, Either, Exit, Fiber, Layer, Logger, Option, Scope } from "effect"
import { type Append, SessionElsewhere, SessionEvents } from "../../../src/Gateway/SessionEvents.ts"
import { SessionNodes } from "../../../src/Gateway/SessionNodes.ts"
import { ChangeLog } from "../../../src/Kv/ChangeLog.ts"
import { StoreUnavailable } from "../../../src/Kv/Store.ts"
import { migrations } from "../../../src/Storage/Postgres/Schema.ts"
import type * as PostgresSessionEvents from "../../../src/Storage/Postgres/SessionEvents.ts"
import {
  createDatabase,
  execute,
  nodeLayer,
  optionsOf,
  server,
  withClient,
  withOwnClock
} from "../../postgres/Databases.ts"
import * as Proxy from "../../postgres/Proxy.ts"
import { reasonToSkip } from "../../postgres/Server.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"
import { logged, opening, persist } from "./Fixture.ts"

const quiet = Logger.remove(Logger.defaultLogger)

type Events = Context.Tag.Service<SessionEvents>

/** No lease ends during a test, however slow the machine is. */
const lasting = { lease: Duration.minutes(1) }

/** For what happens when a lease is renewed, or has ended. */
const brief = { lease: Duration.seconds(1) }

const node = (url: string, options: PostgresSessionEvents.Options = {}) =>
  Effect.gen(function* () {
    const context = yield* Layer.build(nodeLayer(optionsOf(url), { ...lasting, ...options }))
    const log = Context.get(context, ChangeLog)
    yield* opening({ log })
    return { events: Context.get(context, SessionEvents), nodes: Context.get(context, SessionNodes), log }
  })

const append = (
  events: Events,
  session: string,
  after: number,
  texts: ReadonlyArray<string>,
  more: Partial<Append> = {}
) => events.append({ session, epoch: "e1", after, timestamp: 0, texts, recoveryState: null, ...more })

const textsOf = (events: Events, session: string) =>
  Effect.map(Effect.flatten(events.read(session, 0, 1000)), page => page.events.map(({ text }) => text))

const database = Effect.promise(() => createDatabase())

/** Opens a session as soon as its owner is gone. */
const takeOver = (events: Events, session: string) =>
  Effect.retry(Effect.delay(events.open(session, "other"), "20 millis"), {
    while: error => error instanceof SessionElsewhere
  })

const isElsewhere = <A, E>(effect: Effect.Effect<A, E>) =>
  Effect.map(Effect.flip(effect), error => expect(error).toBeInstanceOf(SessionElsewhere))

describe.skipIf(reasonToSkip !== undefined)(`The session event log in PostgreSQL ${reasonToSkip ?? ""}`, () => {
  it.scopedLive("a session belongs to the node that opened it until that releases it, and every node reads it", () =>
    Effect.gen(function* () {
      const url = yield* database
      const [{ events: one }, { events: other }] = [yield* node(url), yield* node(url)]
      yield* one.open("t/s", "e1")
      yield* one.configure("t/s", { environment: "{}", deployment: null })
      yield* append(one, "t/s", 0, ["1"])
      yield* isElsewhere(other.open("t/s", "e2"))
      yield* isElsewhere(append(other, "t/s", 1, ["foreign"]))
      yield* isElsewhere(other.configure("t/s", { environment: null, deployment: null }))
      yield* isElsewhere(other.restart("t/s", "e2"))
      yield* isElsewhere(other.remove("t/s"))
      expect(yield* textsOf(other, "t/s")).toEqual(["1"])
      yield* one.release("t/s")
      expect(yield* other.open("t/s", "e2")).toMatchObject({ epoch: "e1", headSeq: 1 })
      yield* append(other, "t/s", 1, ["2"])
      yield* isElsewhere(append(one, "t/s", 2, ["late"]))
      yield* isElsewhere(one.restart("t/s", "e3"))
      // The node has given it up itself.
      expect(yield* one.taken).toEqual([])
      // What was released cannot be released again by the one that had it.
      yield* one.release("t/s")
      yield* append(other, "t/s", 2, ["3"])
      expect(yield* textsOf(one, "t/s")).toEqual(["1", "2", "3"])
      expect(yield* one.configuration("t/s")).toEqual({ environment: "{}", deployment: null })
    })
  )

  it.scopedLive("a history that is opened after a fail-over has another epoch, once, and all that is left of it", () =>
    Effect.gen(function* () {
      const url = yield* database
      const [{ events: one }, { events: other }] = [yield* node(url), yield* node(url)]
      yield* one.open("t/s", "e1")
      yield* append(one, "t/s", 0, ["1", "2"], { recoveryState: "open" })
      // As after a promotion of a standby, which may lack the newest events.
      yield* Effect.promise(() => execute(url, "SELECT causeway.renew_epoch()"))
      // The owner knows where the history ends.
      yield* append(one, "t/s", 2, ["3"], { recoveryState: "open" })
      yield* one.release("t/s")
      const opened = yield* other.open("t/s", "e1")
      expect(opened).toMatchObject({ headSeq: 3, trimmedSeq: 0, recoveryState: "open" })
      expect(opened.epoch).toMatch(/^[0-9a-f]{16}$/)
      expect(Option.getOrThrow(yield* one.find("t/s"))).toEqual(opened)
      expect(yield* textsOf(one, "t/s")).toEqual(["1", "2", "3"])
      yield* append(other, "t/s", 3, ["4"], { epoch: opened.epoch })
      // It stays as long as the database does not change.
      expect((yield* other.open("t/s", "e1")).epoch).toBe(opened.epoch)
      yield* other.release("t/s")
      expect((yield* one.open("t/s", "e1")).epoch).toBe(opened.epoch)
      // A restarted history has the epoch that it was given, and keeps it.
      yield* Effect.promise(() => execute(url, "SELECT causeway.renew_epoch()"))
      expect((yield* one.restart("t/s", "e5")).epoch).toBe("e5")
      expect((yield* one.open("t/s", "e6")).epoch).toBe("e5")
    })
  )

  it.scopedLive("a history that an earlier version has written keeps its epoch when it is first opened", () =>
    Effect.gen(function* () {
      const url = yield* database
      const { events } = yield* node(url)
      yield* events.open("t/s", "e1")
      yield* Effect.promise(() => execute(url, "UPDATE causeway.histories SET database_epoch = NULL"))
      expect((yield* events.open("t/s", "e2")).epoch).toBe("e1")
      yield* Effect.promise(() => execute(url, "SELECT causeway.renew_epoch()"))
      expect((yield* events.open("t/s", "e2")).epoch).not.toBe("e1")
    })
  )

  it.scopedLive(
    "a node takes a session that another one gives up, as long as that has it and nothing is to recover",
    () =>
      Effect.gen(function* () {
        const url = yield* database
        const [one, other, third] = [yield* node(url), yield* node(url), yield* node(url)]
        for (const session of ["t/s", "t/unfinished"]) yield* one.events.open(session, "e1")
        yield* append(one.events, "t/unfinished", 0, ["1"], { recoveryState: "open" })
        const prepared: Array<number> = []
        const adopt = (to: typeof one, session: string, token: number) =>
          to.nodes.adopt(session, { node: one.nodes.self, token }, token =>
            Effect.sync(() => void prepared.push(token))
          )
        const token = one.nodes.tokenOf("t/s")!
        expect(yield* adopt(other, "t/s", token + 1000)).toBe(false)
        expect(yield* adopt(other, "t/unfinished", one.nodes.tokenOf("t/unfinished")!)).toBe(false)
        expect(other.nodes.tokenOf("t/s")).toBeUndefined()
        expect(yield* adopt(other, "t/s", token)).toBe(true)
        // No other node can take a session that was given to the one.
        expect(yield* adopt(third, "t/s", token)).toBe(false)
        expect(other.nodes.tokenOf("t/s")).toBe(prepared[2])
        yield* append(other.events, "t/s", 0, ["1"])
        yield* isElsewhere(append(one.events, "t/s", 1, ["late"]))
        yield* isElsewhere(third.events.open("t/s", "e2"))
        expect(yield* textsOf(one.events, "t/s")).toEqual(["1"])
        // Those that take requests are returned.
        yield* one.nodes.advertise("one:1")
        yield* other.nodes.advertise("other:1")
        expect(yield* third.nodes.peers).toEqual(
          expect.arrayContaining([
            { node: one.nodes.self, address: "one:1" },
            { node: other.nodes.self, address: "other:1" }
          ])
        )
        expect(yield* one.nodes.peers).toEqual([{ node: other.nodes.self, address: "other:1" }])
      })
  )

  it.scopedLive("a node warns if another live node has published the same address, and only then", () =>
    Effect.gen(function* () {
      const url = yield* database
      const { layer, lines } = logged()
      const [one, other] = yield* Effect.provide(Effect.all([node(url, brief), node(url, brief)]), layer)
      // An earlier run, whose lease has not ended yet.
      yield* Effect.promise(() =>
        execute(
          url,
          `INSERT INTO causeway.nodes (id, since, expires_at, address)
           VALUES (gen_random_uuid(), now(), now() + interval '1 hour', 'here:1')`
        )
      )
      yield* one.nodes.advertise("here:1")
      yield* other.nodes.advertise("there:1")
      const renewals = `SELECT sum(renewals)::int AS count FROM causeway.nodes`
      const [before] = yield* Effect.promise(() => execute(url, renewals))
      yield* Effect.repeat(
        Effect.delay(
          Effect.promise(() => execute(url, renewals)),
          "20 millis"
        ),
        {
          until: ([now]) => Number(now?.count) >= Number(before?.count) + 6
        }
      )
      expect(lines.join()).not.toContain("the same address")
      yield* other.nodes.advertise("here:1")
      yield* Effect.repeat(Effect.sleep("20 millis"), {
        until: () => lines.filter(line => line.includes("the same address")).length >= 2
      })
      expect(lines.join()).toContain(one.nodes.self)
      expect(lines.join()).toContain(other.nodes.self)
    })
  )

  it.scopedLive("a node that is interrupted while it takes a session knows that it has it", () =>
    Effect.gen(function* () {
      const url = yield* database
      const [one, other] = [yield* node(url), yield* node(url)]
      yield* one.events.open("t/s", "e1")
      const token = one.nodes.tokenOf("t/s")!
      yield* withClient(url, query =>
        Effect.gen(function* () {
          yield* query("BEGIN")
          yield* query("SELECT FROM causeway.histories FOR UPDATE")
          const adopting = yield* Effect.fork(
            other.nodes.adopt("t/s", { node: one.nodes.self, token }, () => Effect.void)
          )
          yield* Effect.repeat(
            Effect.promise(() => execute(url, "SELECT FROM pg_locks WHERE NOT granted")),
            { until: waiting => waiting.length > 0 }
          )
          const interrupting = yield* Effect.fork(Fiber.interrupt(adopting))
          yield* Effect.yieldNow()
          yield* query("COMMIT")
          yield* Fiber.join(interrupting)
        })
      )
      yield* Effect.repeat(
        Effect.promise(() => execute(url, `SELECT FROM causeway.histories WHERE token <> ${token}`)),
        { until: taken => taken.length > 0 }
      )
      expect(other.nodes.tokenOf("t/s")).toBeGreaterThan(token)
      yield* append(other.events, "t/s", 0, ["1"])
    })
  )

  it.scopedLive("of nodes that open a session at once one gets it", () =>
    Effect.gen(function* () {
      const url = yield* database
      const nodes = [yield* node(url), yield* node(url), yield* node(url)]
      const sessions = Array.from({ length: 50 }, (_, index) => `t/${index}`)
      const outcomes = yield* Effect.forEach(
        nodes,
        ({ events }) =>
          Effect.forEach(sessions, session => Effect.either(events.open(session, "e1")), { concurrency: "unbounded" }),
        { concurrency: "unbounded" }
      )
      for (const index of sessions.keys()) {
        expect(outcomes.filter(of => Either.isRight(of[index]!))).toHaveLength(1)
      }
    })
  )

  it.scopedLive("what a node leaves at its end can be opened at once, and what is unfinished is listed", () =>
    Effect.gen(function* () {
      const url = yield* database
      const { events: other } = yield* node(url)
      const scope = yield* Scope.make()
      const { events: one } = yield* Scope.extend(node(url), scope)
      yield* one.open("t/s", "e1")
      yield* append(one, "t/s", 0, ["1"], { recoveryState: "open" })
      const unfinished = [{ session: "t/s", recoveryState: "open" }]
      expect(yield* one.unfinished).toEqual(unfinished)
      expect(yield* other.unfinished).toEqual([])
      expect(yield* other.abandoned).toEqual([])
      yield* Scope.close(scope, Exit.void)
      expect(yield* other.abandoned).toEqual(unfinished)
      expect(yield* other.unfinished).toEqual(unfinished)
      expect(yield* other.open("t/s", "e2")).toMatchObject({ epoch: "e1", recoveryState: "open" })
      expect(yield* other.abandoned).toEqual([])
    })
  )

  it.scopedLive("of many sessions that a node has left, those who take them over begin with different ones", () =>
    Effect.gen(function* () {
      const url = yield* database
      const nodes = [yield* node(url, brief), yield* node(url, brief)]
      yield* Effect.promise(() =>
        execute(
          url,
          `INSERT INTO causeway.histories (session, epoch, head, owner, token, recovery_state)
            SELECT 't/' || i, 'e', 0, '11111111-1111-4111-8111-111111111111', i, 'open' FROM generate_series(1, 5000) i`
        )
      )
      const portions = yield* Effect.forEach(nodes, ({ events }) =>
        // They watch the node for the time of a lease before it is gone.
        Effect.map(
          Effect.repeat(Effect.delay(events.abandoned, "50 millis"), { until: found => found.length > 0 }),
          found => new Set(found.map(({ session }) => session))
        )
      )
      expect(portions.map(({ size }) => size)).toEqual([1000, 1000])
      // 200 by chance.
      expect([...portions[0]!].filter(session => portions[1]!.has(session)).length).toBeLessThan(400)
    }).pipe(Effect.provide(quiet))
  )

  it.scopedLive("a renewal that is under way at the end of a node does not outlive it", () =>
    Effect.gen(function* () {
      const url = yield* database
      const scope = yield* Scope.make()
      yield* Scope.extend(node(url, brief), scope)
      const run = (...statements: ReadonlyArray<string>) => Effect.promise(() => execute(url, ...statements))
      yield* run(
        "ALTER FUNCTION causeway.renew_lease RENAME TO renew_now",
        `CREATE FUNCTION causeway.renew_lease(node uuid, lease bigint, always boolean) RETURNS bigint LANGUAGE sql AS
           $$ SELECT pg_advisory_xact_lock_shared(1); SELECT causeway.renew_now(node, lease, always) $$`
      )
      yield* withClient(url, query =>
        Effect.gen(function* () {
          yield* query("SELECT pg_advisory_lock(1)")
          yield* Effect.repeat(run("SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"), {
            until: waiting => waiting.length > 0
          })
          const closing = yield* Effect.fork(Scope.close(scope, Exit.void))
          // So that whatever does not wait for the renewal comes before it.
          yield* Effect.sleep("200 millis")
          yield* query("SELECT pg_advisory_unlock(1)")
          yield* Fiber.join(closing)
        })
      )
      expect(yield* run("SELECT * FROM causeway.nodes")).toEqual([])
    })
  )

  it.scopedLive("a node that was cut off loses its sessions, writes nothing any longer, and learns of it", () =>
    Effect.gen(function* () {
      const url = yield* database
      const proxy = yield* Proxy.make(url)
      const { events: other } = yield* node(url, brief)
      const { events: stale } = yield* node(proxy.url, brief)
      for (const session of ["t/busy", "t/idle", "t/kept"]) {
        yield* stale.open(session, "e1")
        yield* append(stale, session, 0, ["1"], { recoveryState: "open" })
      }
      yield* Effect.promise(() => proxy.cut(true))
      const abandoned = yield* Effect.repeat(Effect.delay(other.abandoned, "20 millis"), {
        until: found => found.length > 0
      })
      expect(abandoned.map(({ session }) => session).sort()).toEqual(["t/busy", "t/idle", "t/kept"])
      yield* takeOver(other, "t/busy")
      yield* takeOver(other, "t/idle")
      yield* append(other, "t/busy", 1, [])
      yield* Effect.promise(() => proxy.cut(false))
      // The history is where the node had left it, and yet it cannot continue.
      yield* isElsewhere(persist(append(stale, "t/busy", 1, ["stale"])))
      const lost = new Set<string>()
      yield* Effect.repeat(
        Effect.map(Effect.delay(stale.taken, "20 millis"), taken => {
          for (const session of taken) lost.add(session)
        }),
        { until: () => lost.size === 2 }
      )
      expect([...lost].sort()).toEqual(["t/busy", "t/idle"])
      // No node has taken this one.
      yield* append(stale, "t/kept", 1, ["2"])
      expect(yield* textsOf(other, "t/busy")).toEqual(["1"])
      expect(yield* textsOf(other, "t/kept")).toEqual(["1", "2"])
    }).pipe(Effect.provide(quiet))
  )

  it.scopedLive("after an outage of the database that was longer than the lease, nodes keep their sessions", () =>
    Effect.gen(function* () {
      const url = yield* database
      const proxies = [yield* Proxy.make(url), yield* Proxy.make(url)] as const
      const options = { lease: Duration.seconds(2) }
      const { events: one } = yield* node(proxies[0].url, options)
      const { events: other } = yield* node(proxies[1].url, options)
      const live = (count: number) =>
        Effect.promise(async () => {
          for (;;) {
            const [row] = await execute(
              url,
              "SELECT count(*)::int AS n FROM causeway.nodes WHERE expires_at > clock_timestamp()"
            )
            if (row?.n === count) return
          }
        })
      yield* one.open("t/s", "e1")
      yield* Effect.promise(() => Promise.all(proxies.map(proxy => proxy.cut(true))))
      yield* live(0)
      // The other one is the first to be back.
      yield* Effect.promise(() => proxies[1].cut(false))
      yield* live(1)
      yield* isElsewhere(persist(other.open("t/s", "e1")))
      yield* Effect.promise(() => proxies[0].cut(false))
      yield* live(2)
      yield* persist(append(one, "t/s", 0, ["1"]))
      yield* isElsewhere(persist(other.open("t/s", "e1")))
    }).pipe(Effect.provide(quiet))
  )

  it.scopedLive(
    "a node that is gone loses its sessions although the clock of the database is set back, and no other does",
    () =>
      Effect.gen(function* () {
        const url = yield* database
        const setClock = yield* Effect.promise(() => withOwnClock(url))
        yield* Effect.promise(() => setClock(3_600_000))
        const proxy = yield* Proxy.make(url)
        const { events: gone } = yield* node(proxy.url, brief)
        const { events: one } = yield* node(url, { lease: Duration.seconds(3) })
        const { events: other } = yield* node(url, brief)
        yield* gone.open("t/gone", "e1")
        yield* one.open("t/kept", "e1")
        yield* append(one, "t/kept", 0, ["1"], { recoveryState: "open" })
        yield* Effect.promise(() => proxy.cut(true))
        yield* Effect.promise(() => setClock(0))
        yield* takeOver(other, "t/gone")
        yield* append(other, "t/gone", 0, ["2"])
        // The others have renewed their leases all the while.
        yield* isElsewhere(other.open("t/kept", "e1"))
        expect(yield* other.abandoned).toEqual([])
        yield* append(one, "t/kept", 1, ["2"])
        // Set back once more, the clock does not give what is gone a lease again.
        yield* Effect.promise(() => setClock(-3_600_000))
        yield* append(other, "t/gone", 1, ["3"])
        yield* Effect.promise(() => proxy.cut(false))
        yield* persist(isElsewhere(append(gone, "t/gone", 0, ["stale"])))
        expect(yield* textsOf(other, "t/gone")).toEqual(["2", "3"])
      }).pipe(Effect.provide(quiet))
  )

  it.scopedLive("a node whose clock is an hour ahead removes no events that are newer than the age", () =>
    Effect.gen(function* () {
      const url = yield* database
      const setClock = yield* Effect.promise(() => withOwnClock(url))
      yield* Effect.promise(() => setClock(-3_600_000))
      const { events } = yield* node(url)
      yield* events.open("t/s", "e1")
      const [now] = yield* Effect.promise(() =>
        execute(url, "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS now")
      )
      const ago = (minutes: number) => ({ timestamp: Math.trunc(Number(now?.now)) - minutes * 60_000 })
      yield* append(events, "t/s", 0, ["old"], ago(40))
      yield* append(events, "t/s", 1, ["new"], ago(20))
      expect(yield* events.trim(Duration.minutes(30))).toBe(1)
      expect(yield* textsOf(events, "t/s")).toEqual(["new"])
    })
  )

  it.scopedLive(
    "a node publishes the length of its lease, one of an earlier version too, and has as long to renew it",
    () =>
      Effect.gen(function* () {
        const url = yield* database
        const run = (...statements: ReadonlyArray<string>) => Effect.promise(() => execute(url, ...statements))
        const [long, short] = ["00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"]
        const renew = (id: string, millis: number) => run(`SELECT causeway.renew_lease('${id}', ${millis}, true)`)
        const leases = run("SELECT lease::int, renewals::int FROM causeway.nodes ORDER BY id")
        const step = migrations.findIndex(({ name }) => name === "lengths of leases")
        const before = migrations.slice(0, step).flatMap(({ statements }) => statements)
        yield* run("CREATE SCHEMA causeway", ...before)
        yield* renew(long, 30_000)
        yield* run(...migrations[step]!.statements)
        // Until it has published the length, it has the longest lease.
        expect(yield* leases).toEqual([{ lease: 60_000, renewals: 1 }])
        yield* renew(long, 30_000)
        yield* renew(short, 1000)
        expect(yield* leases).toEqual([
          { lease: 30_000, renewals: 2 },
          { lease: 1000, renewals: 1 }
        ])
        const isGone = (seconds: number) =>
          Effect.gen(function* () {
            yield* run(`UPDATE causeway.nodes SET expires_at = clock_timestamp() WHERE id = '${long}'`)
            yield* run(`UPDATE causeway.nodes SET expires_at = clock_timestamp() + interval '1 hour',
            since = clock_timestamp() - interval '${seconds} seconds' WHERE id = '${short}'`)
            return (yield* run(`SELECT causeway.is_gone('${long}', '${short}', 1000) AS gone`))[0]!.gone
          })
        expect(yield* isGone(20)).toBe(false)
        expect(yield* isGone(31)).toBe(true)
      })
  )

  it.scopedLive("a node in a copy of the directory of another one, which runs, does not end that one's lease", () =>
    Effect.gen(function* () {
      const url = yield* database
      const [directory, copy] = [yield* temporaryDirectory, yield* temporaryDirectory]
      const options = { lease: Duration.seconds(3) }
      const { events: one } = yield* node(url, { ...options, directory })
      yield* one.open("t/s", "e1")
      cpSync(join(directory, "node.id"), join(copy, "node.id"))
      const { events: clone } = yield* node(url, { ...options, directory: copy })
      const { events: third } = yield* node(url, options)
      // More than the time after which the lease of a run that is over is ended.
      for (let attempt = 0; attempt < 25; attempt++) {
        yield* isElsewhere(clone.open("t/s", "e2"))
        yield* isElsewhere(third.open("t/s", "e2"))
        yield* Effect.sleep("100 millis")
      }
      yield* append(one, "t/s", 0, ["1"])
    }).pipe(Effect.provide(quiet))
  )

  it.scopedLive("a node whose lease was removed looks for what others have taken, although it never ended", () =>
    Effect.gen(function* () {
      const url = yield* database
      const [{ events: one }, { events: other }] = [yield* node(url, brief), yield* node(url)]
      yield* one.open("t/s", "e1")
      const removal = "DELETE FROM causeway.nodes WHERE id = (SELECT owner FROM causeway.histories)"
      // It may renew its lease in between.
      const taking = Effect.zipRight(
        Effect.promise(() => execute(url, removal)),
        other.open("t/s", "e1")
      )
      yield* Effect.retry(taking, { while: error => error instanceof SessionElsewhere })
      const taken = Effect.repeat(Effect.delay(one.taken, "20 millis"), { until: taken => taken.length > 0 })
      expect(yield* taken).toEqual(["t/s"])
    }).pipe(Effect.provide(quiet))
  )

  it.scopedLive("the next run in the directory of a node has its sessions soon, and another node does not", () =>
    Effect.gen(function* () {
      const url = yield* database
      const directory = yield* temporaryDirectory
      // The lease of the run that has ended is a minute long, as that of the other node.
      const options = { directory, lease: Duration.seconds(3) }
      const scope = yield* Scope.make()
      const proxy = yield* Proxy.make(url)
      const { events: first } = yield* Scope.extend(node(proxy.url, options), scope)
      yield* first.open("t/s", "e1")
      yield* append(first, "t/s", 0, ["1"], { recoveryState: "open" })
      const other = yield* node(url)
      yield* isElsewhere(other.events.open("t/s", "e1"))
      // It cannot say that it ends.
      yield* Effect.promise(() => proxy.cut(true))
      yield* Scope.close(scope, Exit.void)
      yield* Effect.promise(() =>
        execute(url, "UPDATE causeway.nodes SET expires_at = clock_timestamp() + interval '1 minute'")
      )
      yield* isElsewhere(other.events.open("t/s", "e1"))
      const { events: next } = yield* node(url, options)
      yield* Effect.repeat(Effect.delay(next.unfinished, "20 millis"), { until: found => found.length > 0 })
      expect(yield* next.unfinished).toEqual([{ session: "t/s", recoveryState: "open" }])
      yield* next.open("t/s", "e1")
    }).pipe(Effect.provide(quiet))
  )

  // The time limit of a group is by the test's clock, which does not advance, as a machine may be slow.
  it.scoped("writes of many sessions share calls, none is in the change log, and one that is refused fails alone", () =>
    Effect.gen(function* () {
      const url = yield* database
      const { events, log } = yield* node(url)
      const sessions = Array.from({ length: 100 }, (_, index) => `t/${index}`)
      yield* Effect.forEach(sessions, session => events.open(session, "e1"), { concurrency: "unbounded" })
      const commits = Effect.map(
        Effect.promise(() => execute(url, "SELECT count(*)::int AS n FROM causeway.commits")),
        ([row]) => Number(row?.n)
      )
      expect(yield* commits).toBeLessThanOrEqual(3)
      // The database takes no such character; the events of sessions never have it.
      const outcomes = yield* Effect.forEach(
        sessions,
        (session, index) => Effect.either(append(events, session, 0, [index === 50 ? "\u0000" : session])),
        { concurrency: "unbounded" }
      )
      expect(outcomes.flatMap((outcome, index) => (Either.isLeft(outcome) ? [index] : []))).toEqual([50])
      expect(yield* textsOf(events, "t/51")).toEqual(["t/51"])
      expect(yield* textsOf(events, "t/50")).toEqual([])
      expect(yield* log.lastSeq).toBe(0)
    }).pipe(Effect.provide(quiet))
  )

  const lost = (mode: Proxy.Mode) =>
    Effect.gen(function* () {
      const url = yield* database
      const proxy = yield* Proxy.make(url)
      const { events } = yield* node(proxy.url)
      yield* events.open("t/s", "e1")
      proxy.set(mode, "write_sessions")
      void proxy.affected.then(() => proxy.set("open"))
      yield* append(events, "t/s", 0, ["1"])
      yield* Effect.promise(() => proxy.affected)
      yield* append(events, "t/s", 1, ["2"])
      expect(yield* textsOf(events, "t/s")).toEqual(["1", "2"])
    }).pipe(Effect.provide(quiet))

  it.scopedLive("an append whose answer is lost is found out about, and not repeated", () => lost("answers lost"))

  it.scopedLive("an append that has never arrived is repeated", () => lost("requests lost"))

  it.scopedLive("after an unknown outcome nothing is written before it is found out, so that order is kept", () =>
    Effect.gen(function* () {
      const url = yield* database
      const proxy = yield* Proxy.make(url)
      const { events } = yield* node(proxy.url)
      yield* events.open("t/s", "e1")
      proxy.set("answers lost")
      expect(yield* Effect.flip(append(events, "t/s", 0, ["1"]))).toBeInstanceOf(StoreUnavailable)
      proxy.set("open")
      // As a session does: it reads where the history ends, and continues from there.
      const { headSeq } = yield* persist(Effect.flatten(events.find("t/s")))
      const outcome = yield* Effect.either(persist(append(events, "t/s", headSeq, [])))
      const now = yield* persist(Effect.flatten(events.find("t/s")))
      expect(Either.isRight(outcome) ? headSeq : now.headSeq).toBe(now.headSeq)
      yield* append(events, "t/s", now.headSeq, ["last"])
      expect(yield* textsOf(events, "t/s")).toEqual(now.headSeq === 1 ? ["1", "last"] : ["last"])
    }).pipe(Effect.provide(quiet))
  )

  it.scopedLive("histories are unavailable while the database is not there at the start, and are there with it", () =>
    Effect.gen(function* () {
      const own = yield* server({})
      const url = yield* Effect.promise(() => createDatabase(own))
      yield* Effect.promise(() => own.stop("fast"))
      const { events } = yield* node(url, brief)
      for (const call of [
        events.open("t/s", "e1"),
        events.find("t/s"),
        events.unfinished,
        events.trim(Duration.zero)
      ]) {
        expect(yield* Effect.flip<unknown, unknown, never>(call)).toBeInstanceOf(StoreUnavailable)
      }
      yield* Effect.promise(() => own.start())
      expect(yield* persist(events.open("t/s", "e1"))).toMatchObject({ headSeq: 0 })
      expect(Option.isSome(yield* events.find("t/s"))).toBe(true)
    }).pipe(Effect.provide(quiet))
  )

  it.scopedLive("ids of receipts may have any characters", () =>
    Effect.gen(function* () {
      const { events } = yield* node(yield* database)
      yield* events.open("t/s", "e1")
      const ids = ["\u0000", "\ud800", "\udc00", '"', "ä"]
      for (const [seq, id] of ids.entries()) {
        yield* append(events, "t/s", seq, ["x"], { receipt: { id, digest: String(seq), turnId: null } })
      }
      for (const [seq, id] of ids.entries()) {
        expect(yield* events.receipt("t/s", id)).toEqual(Option.some({ id, digest: String(seq), turnId: null }))
      }
    })
  )
})
