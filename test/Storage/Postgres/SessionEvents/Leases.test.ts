/** Leases of nodes over one database: how they are renewed, when they end, and who takes the sessions. */
import { cpSync } from "node:fs"
import { join } from "node:path"
import { expect } from "@effect/vitest"
import { Duration, Effect, Exit, Fiber, Scope } from "effect"
import { SessionElsewhere } from "../../../../src/Gateway/SessionEvents.ts"
import { execute, newStore, sql, withClient, withOwnClock } from "../../../postgres/Databases.ts"
import { live, onPostgres } from "../../../postgres/Live.ts"
import * as Opened from "../../../postgres/Opened.ts"
import * as Proxy from "../../../postgres/Proxy.ts"
import { temporaryDirectory } from "../../../TemporaryDirectory.ts"
import { logged } from "../Fixture.ts"
import { append, brief, type Events, isElsewhere, node, textsOf } from "./Fixture.ts"

/** Opens a session as soon as its owner is gone. */
const takeOver = (events: Events, session: string) =>
  Effect.retry(Effect.delay(events.open(session, "other"), "20 millis"), {
    while: error => error instanceof SessionElsewhere
  })

onPostgres("The session event log in PostgreSQL", () => {
  live("a node warns if another live node has published the same address, and only then", function* () {
    const url = yield* newStore
    const { layer, lines } = logged()
    const [one, other] = yield* Effect.provide(Effect.all([node(url, brief), node(url, brief)]), layer)
    // An earlier run, whose lease has not ended yet.
    yield* sql(
      url,
      `INSERT INTO causeway.nodes (id, since, expires_at, address)
           VALUES (gen_random_uuid(), now(), now() + interval '1 hour', 'here:1')`
    )
    yield* one.nodes.advertise("here:1")
    yield* other.nodes.advertise("there:1")
    const renewals = `SELECT sum(renewals)::int AS count FROM causeway.nodes`
    const [before] = yield* sql(url, renewals)
    yield* Effect.repeat(Effect.delay(sql(url, renewals), "20 millis"), {
      until: ([now]) => Number(now?.count) >= Number(before?.count) + 6
    })
    expect(lines.join()).not.toContain("the same address")
    yield* other.nodes.advertise("here:1")
    yield* Effect.repeat(Effect.sleep("20 millis"), {
      until: () => lines.filter(line => line.includes("the same address")).length >= 2
    })
    expect(lines.join()).toContain(one.nodes.self)
    expect(lines.join()).toContain(other.nodes.self)
  })

  live("a renewal that is under way at the end of a node does not outlive it", function* () {
    const url = yield* newStore
    const scope = yield* Scope.make()
    yield* Scope.extend(node(url, brief), scope)
    const run = (...statements: ReadonlyArray<string>) => sql(url, ...statements)
    yield* run(
      "ALTER FUNCTION causeway.renew_lease RENAME TO renew_now",
      `CREATE FUNCTION causeway.renew_lease(node uuid, lease bigint, always boolean) RETURNS bigint LANGUAGE sql AS
           $$ SELECT pg_advisory_xact_lock_shared(1); SELECT causeway.renew_now(node, lease, always) $$`
    )
    yield* withClient(url, function* (query) {
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
    expect(yield* run("SELECT * FROM causeway.nodes")).toEqual([])
  })

  live("a node that was cut off loses its sessions, writes nothing any longer, and learns of it", function* () {
    const url = yield* newStore
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
    yield* isElsewhere(Opened.persist(append(stale, "t/busy", 1, ["stale"])))
    const lost = new Set<string>()
    yield* Effect.repeat(
      Effect.map(stale.taken, taken => {
        for (const session of taken) lost.add(session)
      }),
      { until: () => lost.size === 2 }
    )
    expect([...lost].sort()).toEqual(["t/busy", "t/idle"])
    // No node has taken this one.
    yield* append(stale, "t/kept", 1, ["2"])
    expect(yield* textsOf(other, "t/busy")).toEqual(["1"])
    expect(yield* textsOf(other, "t/kept")).toEqual(["1", "2"])
  })

  live("after an outage of the database that was longer than the lease, nodes keep their sessions", function* () {
    const url = yield* newStore
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
    yield* isElsewhere(Opened.persist(other.open("t/s", "e1")))
    yield* Effect.promise(() => proxies[0].cut(false))
    yield* live(2)
    yield* Opened.persist(append(one, "t/s", 0, ["1"]))
    yield* isElsewhere(Opened.persist(other.open("t/s", "e1")))
  })

  live(
    "a node that is gone loses its sessions although the clock of the database is set back, and no other does",
    function* () {
      const url = yield* newStore
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
      yield* Opened.persist(isElsewhere(append(gone, "t/gone", 0, ["stale"])))
      expect(yield* textsOf(other, "t/gone")).toEqual(["2", "3"])
    }
  )

  live("a node whose clock is an hour ahead removes no events that are newer than the age", function* () {
    const url = yield* newStore
    const setClock = yield* Effect.promise(() => withOwnClock(url))
    yield* Effect.promise(() => setClock(-3_600_000))
    const { events } = yield* node(url)
    yield* events.open("t/s", "e1")
    const [now] = yield* sql(url, "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::float8 AS now")
    const ago = (minutes: number) => ({ timestamp: Math.trunc(Number(now?.now)) - minutes * 60_000 })
    yield* append(events, "t/s", 0, ["old"], ago(40))
    yield* append(events, "t/s", 1, ["new"], ago(20))
    expect(yield* events.trim(Duration.minutes(30))).toBe(1)
    expect(yield* textsOf(events, "t/s")).toEqual(["new"])
  })

  live("a node publishes the length of its lease, and has as long to renew it", function* () {
    const url = yield* newStore
    const run = (...statements: ReadonlyArray<string>) => sql(url, ...statements)
    const [long, short] = ["00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"]
    const renew = (id: string, millis: number) => run(`SELECT causeway.renew_lease('${id}', ${millis}, true)`)
    const leases = run("SELECT lease::int, renewals::int FROM causeway.nodes ORDER BY id")
    yield* Opened.open(url)
    yield* renew(long, 10_000)
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

  live("a node in a copy of the directory of another one, which runs, does not end that one's lease", function* () {
    const url = yield* newStore
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
  })

  live("a node whose lease was removed looks for what others have taken, although it never ended", function* () {
    const url = yield* newStore
    const [{ events: one }, { events: other }] = [yield* node(url, brief), yield* node(url)]
    yield* one.open("t/s", "e1")
    const removal = "DELETE FROM causeway.nodes WHERE id = (SELECT owner FROM causeway.histories)"
    // It may renew its lease in between.
    const taking = Effect.zipRight(sql(url, removal), other.open("t/s", "e1"))
    yield* Effect.retry(taking, { while: error => error instanceof SessionElsewhere })
    expect(yield* one.taken).toEqual(["t/s"])
  })

  live("the next run in the directory of a node has its sessions soon, and another node does not", function* () {
    const url = yield* newStore
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
    yield* sql(url, "UPDATE causeway.nodes SET expires_at = clock_timestamp() + interval '1 minute'")
    yield* isElsewhere(other.events.open("t/s", "e1"))
    const { events: next } = yield* node(url, options)
    yield* Effect.repeat(Effect.delay(next.unfinished, "20 millis"), { until: found => found.length > 0 })
    expect(yield* next.unfinished).toEqual([{ session: "t/s", recoveryState: "open" }])
    yield* next.open("t/s", "e1")
  })
})
