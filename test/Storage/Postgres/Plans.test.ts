/**
 * What statements read of large tables: by an index the rows that they need, and never all of them. The statistics of the
 * server have this, also for what functions and triggers read.
 */
import { randomUUID } from "node:crypto"
import { describe, expect, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import pg from "pg"
import type { ChangeQuery } from "../../../src/Kv/ChangeLog.ts"
import type { Write } from "../../../src/Kv/Write.ts"
import type { EntryQuery } from "../../../src/Storage/EntryRows.ts"
import * as Client from "../../../src/Storage/Postgres/Database/Client.ts"
import * as Snapshots from "../../../src/Storage/Postgres/Database/Snapshots.ts"
import type { Parameter, Query, Statement } from "../../../src/Storage/Postgres/Database/Statement.ts"
import * as Group from "../../../src/Storage/Postgres/Kv/Group.ts"
import * as IdempotencyRecords from "../../../src/Storage/Postgres/Kv/IdempotencyRecords.ts"
import * as ListQueries from "../../../src/Storage/Postgres/Kv/ListQueries.ts"
import * as Namespaces from "../../../src/Storage/Postgres/Kv/Namespaces.ts"
import * as PrefixDelete from "../../../src/Storage/Postgres/Kv/PrefixDelete.ts"
import * as Queries from "../../../src/Storage/Postgres/Kv/Queries.ts"
import * as Opening from "../../../src/Storage/Postgres/Opening.ts"
import * as SessionQueries from "../../../src/Storage/Postgres/SessionEvents/Queries.ts"
import * as Writes from "../../../src/Storage/Postgres/SessionEvents/Writes.ts"
import { createDatabase, execute } from "../../postgres/Databases.ts"
import { reasonToSkip } from "../../postgres/Server.ts"
import { del, set } from "../../suites/Store/Fixture.ts"

/** Those that grow with what is stored. The others have a row for each node, or for each write of the last minute. */
const large = [
  ...["entries", "tombstones", "changes", "base_namespaces", "base_tenants", "count_changes", "remembered_writes"],
  ...["histories", "events", "receipts", "launch_configurations"]
]

const now = 1_700_000_000_000
const node = "11111111-1111-4111-8111-111111111111"
const gone = "22222222-2222-4222-8222-222222222222"

/** Entries that have expired, and sessions with something to recover. */
const due = 2000
const unfinished = 1000

/** One namespace with most entries, and many with few; as many records; one long history, and many short ones. */
const content: ReadonlyArray<string> = [
  `INSERT INTO causeway.entries (namespace, key, version, updated_at, expires_at, updated_by, value)
   SELECT CASE
       WHEN n <= 80000 THEN 'tenant:big/all'
       WHEN n <= 90000 THEN 'tenant:big/due'
       WHEN n <= 150000 THEN 'tenant:t' || n % 3000 || '/s' || n % 15000
       ELSE 'plain-' || n % 5000
     END, 'k' || lpad(n::text, 6, '0'), 1, 1,
     CASE WHEN n BETWEEN 80001 AND 80000 + ${due} THEN n - 80000 WHEN n BETWEEN 82001 AND 90000 THEN ${now} + n END, 'tester', '1'
   FROM generate_series(1, 160000) n`,
  `INSERT INTO causeway.changes (seq, op, namespace, key, version, actor, timestamp, value)
   SELECT n, CASE WHEN n % 4 = 0 THEN 'delete' ELSE 'set' END,
     CASE WHEN n % 10 < 8 THEN 'tenant:big/all' WHEN n % 10 = 8 THEN 'tenant:t' || n % 3000 || '/s' ELSE 'plain-' || n % 5000 END,
     'k' || lpad(n::text, 6, '0'), 1, 'tester', n, '1'
   FROM generate_series(1, 160000) n`,
  `INSERT INTO causeway.tombstones (namespace, key, version, seq)
   SELECT c.namespace, 'gone' || c.seq, 2, c.seq FROM causeway.changes c WHERE c.op = 'delete'`,
  `INSERT INTO causeway.remembered_writes (up_to, tenant, id, digest, kept_at, outcome)
   SELECT 300 * n, 't' || n % 1000, 'id' || n, 'digest', ${now}, repeat('1', 44) FROM generate_series(1, 40000) n`,
  `INSERT INTO causeway.remembered_tenants (tenant, bytes, up_to)
   SELECT tenant, sum(300), max(up_to) FROM causeway.remembered_writes GROUP BY tenant`,
  `INSERT INTO causeway.nodes (id, since, expires_at) VALUES
     ('${node}', now() - interval '1 hour', now() + interval '1 day'),
     ('${gone}', now() - interval '1 hour', now() - interval '1 minute')`,
  // Half of those with something to recover are of a node that is gone.
  `INSERT INTO causeway.histories (session, epoch, head, bytes, owner, token, recovery_state)
   SELECT 't' || n % 3000 || '/' || n, 'e', CASE n WHEN 1 THEN 40000 ELSE 2 END, CASE n WHEN 1 THEN 400000 ELSE 20 END,
     CASE n % 2 WHEN 1 THEN '${node}'::uuid ELSE '${gone}'::uuid END, n, CASE WHEN n <= ${unfinished} THEN '{}' END
   FROM generate_series(1, 60000) n`,
  `INSERT INTO causeway.events (history, seq, timestamp, size, text)
   SELECT h.id, s, h.id * 10 + s, 10, '0123456789' FROM causeway.histories h, generate_series(1, h.head) s`,
  `INSERT INTO causeway.receipts (history, id, seq, digest)
   SELECT e.history, '"m' || e.seq || '"', e.seq, 'digest' FROM causeway.events e WHERE e.seq <= 5000`,
  `INSERT INTO causeway.launch_configurations (session, environment)
   SELECT session, '{}' FROM causeway.histories`,
  // As housekeeping does.
  "SELECT causeway.fold_counts(1, 1000000)",
  "ANALYZE"
]

/** A statement, and how many rows of any large table it may read at most. */
interface Case {
  readonly name: string
  readonly statement: Statement
  readonly values: ReadonlyArray<Parameter>
  readonly most: number
}

const reading = <A>(name: string, { statement, values }: Query<A>, most: number): Case => ({
  name,
  statement,
  values,
  most
})

/** A page of 100 entries. */
const list = (name: string, query: Partial<EntryQuery>, most = 110): Case =>
  reading(
    `list ${name}`,
    ListQueries.entries({ namespace: "tenant:big/all", prefix: "", after: "", limit: 100, now, ...query }),
    most
  )

const changes = (name: string, query: Partial<ChangeQuery>, most = 110): Case =>
  reading(`changes ${name}`, Queries.changes({ after: 0, limit: 100, tenant: "", ...query }), most)

/** Rows that pages with a count visit, in addition to their own entries. */
const counting = 110 + 5001 + 2001

const address = (index: number) => ({ namespace: "tenant:big/all", key: `k${String(index).padStart(6, "0")}` })
const addresses = Array.from({ length: 1000 }, (_, index) => address(1 + 70 * index))

const sessions = Array.from({ length: 100 }, (_, index) => `t${(1 + 500 * index) % 3000}/${1 + 500 * index}`)

const lists: ReadonlyArray<Case> = [
  list("from the start", {}),
  list("after a key", { after: "k040000" }),
  list("of a prefix", { prefix: "k0799" }),
  list("of a prefix that nothing has", { prefix: "none" }),
  list("from a start to an end", { start: "k020000", end: "k030000" }),
  list("from an end", { isDescending: true }),
  list("from an end, before a key", { isDescending: true, after: "k040000", prefix: "k0" }),
  list("of keys", { keysOnly: true, after: "k040000", prefix: "k0" }),
  list("of a small namespace", { namespace: "tenant:t1/s1" }),
  list("of no namespace", { namespace: "none" }),
  list("with a count", { isCounted: true }, counting),
  list("with a count of a prefix", { isCounted: true, prefix: "k0" }, counting),
  list("with a count of a range", { isCounted: true, start: "k020000", end: "k079000", isDescending: true }, counting)
]

/** What is read in the snapshot of a whole list, or of a count. */
const portions: ReadonlyArray<Case> = [
  ...lists,
  reading(
    "part of a count",
    ListQueries.part({ namespace: "tenant:big/all", prefix: "k0" }, "k000100", false, now),
    20_000
  ),
  reading("part of a count of rows", ListQueries.part({ namespace: "tenant:big/all", prefix: "" }, "", true, now), 5000)
]

const reads: ReadonlyArray<Case> = [
  reading("get", Queries.get("tenant:big/all", "k000500", now), 5),
  reading("get of what is absent", Queries.get("tenant:none", "k", now), 5),
  reading("get many", Queries.getMany(addresses.slice(0, 10), 1e9, false, now), 30),
  reading("get a thousand", Queries.getMany(addresses, 1e9, false, now), 2100),
  reading("get a thousand keys", Queries.getMany(addresses, 1e9, true, now), 1100),

  ...lists,
  ...(
    [
      ["", {}],
      [" of a prefix", { prefix: "tenant:t2" }],
      [" after a name", { after: "tenant:t2000/s2000" }],
      [" of a tenant", { tenant: "t2000" }],
      [" without a tenant", { isWithoutTenant: true }]
    ] as const
  ).map(([name, query]) =>
    reading(
      `namespaces${name}`,
      Namespaces.namespaces({ prefix: "", after: "", limit: 100, tenant: "", ...query }, now),
      due + 110
    )
  ),
  ...(
    [
      ["", {}],
      [" of a prefix", { prefix: "t2" }],
      [" after an id", { after: "t2000" }],
      [" of one", { tenant: "t2000" }]
    ] as const
  ).map(([name, query]) =>
    reading(`tenants${name}`, Namespaces.tenants({ prefix: "", limit: 100, tenant: "", ...query }, now), due + 110)
  ),

  changes("from the start", {}),
  changes("near the end", { after: 159_950 }),
  changes("at the end", { after: 160_000 }),
  // Some records of others are between its own.
  changes("of the tenant with the most", { tenant: "big", after: 1000 }, 200),
  changes("of a tenant with few", { tenant: "t38", after: 0 }),
  changes("of a tenant with few, near the end", { tenant: "t38", after: 159_000 }),
  changes("of no tenant", { tenant: "none" }),
  changes("of a namespace", { namespace: "tenant:big/all", after: 1000 }, 2010),
  changes("of a small namespace and a prefix", { namespace: "plain-9", prefix: "k", after: 1000 }, 2010),

  reading("the clock and the end of the log", Queries.clockAndLogEnd, 5),
  reading("end", Queries.end, 5),
  reading("due", Queries.due, 10),
  reading("history", Queries.history, 5),

  reading("find a session", SessionQueries.find("t1/1"), 5),
  reading("a page of events", SessionQueries.page("t1/1", 20_000, 100), 110),
  reading("the last page of events", SessionQueries.page("t1/1", 39_990, 100), 110),
  reading("a page of a short history", SessionQueries.page("t2/2", 0, 1000), 10),
  reading("a receipt", SessionQueries.receipt("t1/1", "m4000"), 5),
  reading("a launch configuration", SessionQueries.configuration("t1/1"), 5),
  reading("summaries", SessionQueries.summaries(sessions), 110),
  reading("abandoned sessions", SessionQueries.abandoned(node, 10_000), 3 * unfinished),
  reading("owned sessions", SessionQueries.owned(sessions, node), 110),
  reading("sessions elsewhere", SessionQueries.elsewhere(sessions, gone), 110),
  reading("the owner of a session", SessionQueries.owner("t1/1", gone), 5)
]

/** What a node asks once, when it starts. */
const atStart: ReadonlyArray<Case> = [
  reading("unfinished sessions", SessionQueries.unfinished(node, 10_000), 3 * unfinished)
]

/** A call of a function with as many parameters. */
const calling = (name: string, values: ReadonlyArray<Parameter>, most: number, title = name): Case => ({
  name: title,
  statement: { name: title, text: `SELECT causeway.${name}(${values.map((_, index) => `$${index + 1}`).join(", ")})` },
  values,
  most
})

const committing = (title: string, writes: ReadonlyArray<Write>, most: number): Case =>
  calling("commit_group", [randomUUID(), now, false, ...Group.encode(writes)], most, title)

const write = (...operations: ReadonlyArray<Write["operations"][number]>): Write => ({ operations, actor: "tester" })

const one = "tenant:big/all"
const many = Array.from({ length: 1000 }, (_, index) => ({
  namespace: `tenant:t${index}/s${index}`,
  key: `k0${90_000 + index}`
}))

const keyed: ReadonlyArray<Write> = ["id100", "new"].map(id => ({
  ...write(set(one, `key of ${id}`, 1)),
  idempotencyKey: { tenant: "t1", id, digest: "digest" }
}))

const removing = { namespace: one, prefix: "k00", limit: 1000 }

const holder: Writes.LeaseHolder = { node, lease: 10_000, tokenOf: session => Number(session.split("/")[1]) }

const appending = (title: string, session: string, after: number, most: number): Case =>
  calling(
    "write_sessions",
    [
      randomUUID(),
      ...Writes.encode(
        [
          {
            op: "append",
            session,
            epoch: "e",
            after,
            timestamp: now,
            texts: ["one", "two"],
            recoveryState: null,
            receipt: { id: "new", digest: "digest", turnId: null },
            revoked: "m2"
          }
        ],
        holder,
        { events: 40_000, bytes: 1e9 }
      ).parameters
    ],
    most,
    title
  )

/**
 * Each in a transaction of its own that is rolled back. The first ones have plans made that are kept for those after
 * them.
 */
const writes: ReadonlyArray<Case> = [
  committing("deletes in many namespaces", [write(...many.map(({ key, namespace }) => del(namespace, key)))], 5000),
  committing("sets in many namespaces", [write(...many.map(({ namespace }) => set(namespace, "new", 1)))], 10_000),
  calling("expire", [now, 500], 2000),
  committing("a set of a new key", [write(set(one, "new", 1))], 20),
  committing("a set of a new namespace", [write(set("tenant:new/x", "new", 1))], 20),
  committing("a set", [write(set(one, "k000500", 1))], 20),
  committing("a delete", [write(del(one, "k000500"))], 20),
  committing(
    "a delete of all that a namespace has",
    [write(...[90_005, 105_005, 120_005, 135_005].map(n => del("tenant:t5/s5", `k${String(n).padStart(6, "0")}`)))],
    30
  ),
  committing("a set of a deleted key", [write(set(one, "gone4", 1))], 20),
  committing("a condition", [write(set(one, "k000500", 1, { precondition: { match: [2] } }))], 20),
  calling("remove_entries", [randomUUID(), now, ...PrefixDelete.encode(removing, "tester")], 6000),
  calling(
    "commit_keyed",
    [
      ...[randomUUID(), now, false, ...Group.encode(keyed)],
      ...IdempotencyRecords.encode(keyed, { limitBytes: 1e9, compares: true })
    ],
    50
  ),
  calling(
    "commit_keyed",
    [
      ...[randomUUID(), now, false, ...Group.encode(keyed.slice(1))],
      ...IdempotencyRecords.encode(keyed.slice(1), { limitBytes: 1e9, compares: true })
    ],
    50,
    "commit_keyed with a new key"
  ),
  calling("trim", [1000, 500], 2000),
  calling("trim", [1, 500], 600, "trim of nothing"),

  appending("an append", "t1001/1001", 2, 20),
  appending("an append to a long history", "t1/1", 40_000, 20_000),
  calling(
    "write_sessions",
    [
      randomUUID(),
      ...Writes.encode(
        [
          { op: "open", session: "t3/3", epoch: "e" },
          { op: "open", session: "new/1", epoch: "e" },
          { op: "restart", session: "t5/5", epoch: "e" },
          { op: "configure", session: "t5/5", configuration: { environment: "{}", deployment: null } },
          { op: "remove", session: "t7/7" },
          { op: "release", session: "t9/9", token: 9 }
        ],
        holder,
        { events: 10_000, bytes: 1e9 }
      ).parameters
    ],
    50,
    "openings, restarts, removals and releases of sessions"
  ),
  reading("adopting a session", SessionQueries.adopt("t1001/1001", { node: gone, token: 1 }, { node, token: 1001 }), 5),
  // A session has thousands of receipts.
  calling("trim_sessions", [10_000, 500], 10_000),
  calling("trim_sessions", [1, 500], 5, "trim_sessions of nothing")
]

interface Read {
  readonly scans: number
  readonly rows: number
}

/** A connection as those of the service, with settings. */
const connect = (url: string, settings: ReadonlyArray<string>) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const client = new pg.Client(Client.clientConfig(Redacted.make(url)))
      await client.connect()
      for (const setting of settings) await client.query(`SET ${setting}`)
      return client
    }),
    client => Effect.promise(() => client.end())
  )

/** What this transaction has read of each large table, and what those before it that are not reported yet. */
const statistics = async (client: pg.Client): Promise<ReadonlyMap<string, Read>> => {
  const { rows } = await client.query<Read & { readonly name: string }>(
    `SELECT relname AS name, seq_scan::int AS scans,
       (coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::int AS rows
     FROM pg_stat_xact_user_tables WHERE schemaname = 'causeway' AND relname = ANY ($1)`,
    [large]
  )
  return new Map(rows.map(({ name, rows, scans }) => [name, { scans, rows }]))
}

const none: Read = { scans: 0, rows: 0 }

/** What a case reads that it should not, by table. */
const excess = async (client: pg.Client, { most, name, statement: { text }, values }: Case) => {
  await client.query("BEGIN")
  const before = await statistics(client)
  await client.query({ name, text, values: [...values] })
  const after = await statistics(client)
  await client.query("ROLLBACK")
  return [...after].flatMap(([table, read]) => {
    const { rows, scans } = before.get(table) ?? none
    const found = { statement: name, table, scans: read.scans - scans, rows: read.rows - rows }
    return found.scans > 0 || found.rows > most ? [found] : []
  })
}

let filled: Promise<string> | undefined

/** A database with content, made once. */
const database = Effect.promise(() => {
  filled ??= (async () => {
    const url = await createDatabase()
    await Effect.runPromise(Opening.open(Redacted.make(url)))
    await execute(url, ...content)
    return url
  })()
  return filled
})

/** How the server plans a statement the first times, how it may from then on, and how it does in snapshots. */
const modes = [
  ["planned for their parameters", ["plan_cache_mode = force_custom_plan"], [...reads, ...atStart, ...writes]],
  ["planned for any parameters", ["plan_cache_mode = force_generic_plan"], [...reads, ...writes]],
  ["of snapshots", Snapshots.planning, portions]
] as const

describe.skipIf(reasonToSkip !== undefined)(`Postgres, plans ${reasonToSkip ?? ""}`, () => {
  for (const [title, settings, cases] of modes) {
    it.scopedLive(`statements ${title} read of large tables what they need, by an index`, () =>
      Effect.gen(function* () {
        const client = yield* connect(yield* database, settings)
        const found = yield* Effect.forEach(cases, each => Effect.promise(() => excess(client, each)))
        expect(found.flat()).toEqual([])
      })
    )
  }
})
