/** Queries of the service, with what they may read. */

import type { ActiveQuery } from "../../../../src/Gateway/SessionEvents.ts"
import type { ChangeQuery } from "../../../../src/Kv/ChangeLog.ts"
import type { EntryQuery } from "../../../../src/Storage/KeyOrder.ts"
import * as ListQueries from "../../../../src/Storage/Postgres/Kv/ListQueries.ts"
import * as Namespaces from "../../../../src/Storage/Postgres/Kv/ListQueries.ts"
import * as Queries from "../../../../src/Storage/Postgres/Kv/Queries.ts"
import * as SessionQueries from "../../../../src/Storage/Postgres/SessionEvents/SessionQueries.ts"
import { type Case, reading } from "./Case.ts"
import { due, gone, node, now, unfinished } from "./Content.ts"

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

const active = (from: ActiveQuery["from"], filter: ActiveQuery["filter"] = {}) =>
  SessionQueries.active({ tenant: "big", limit: 201, from, filter })

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
export const portions: ReadonlyArray<Case> = [
  ...lists,
  reading(
    "part of a count",
    ListQueries.part({ namespace: "tenant:big/all", prefix: "k0" }, "k000100", false, now),
    20_000
  ),
  reading("part of a count of rows", ListQueries.part({ namespace: "tenant:big/all", prefix: "" }, "", true, now), 5000)
]

/** What nodes ask while they run. */
export const reads: ReadonlyArray<Case> = [
  reading("get", Queries.getAll([{ namespace: "tenant:big/all", key: "k000500" }], now, 1e9), 5),
  reading("get of what is absent", Queries.getAll([{ namespace: "tenant:none", key: "k" }], now, 1e9), 5),
  reading("get of several entries", Queries.getAll(addresses.slice(0, 10), now, 1e9), 30),
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
  reading("a checkpoint", SessionQueries.checkpoint("t1/1"), 5),
  reading("a launch configuration", SessionQueries.configuration("t1/1"), 5),
  reading("summaries", SessionQueries.summaries(sessions), 110),
  reading("the last active sessions", active({ before: { at: Number.MAX_SAFE_INTEGER, session: "big/" } }), 210),
  reading("sessions by activity", active({ after: { at: 0, session: "big/55000" } }), 210),
  reading("sessions by a common activity", active({ after: { at: 0, session: "" } }, { waiting: false }), 210),
  reading("stored sessions", SessionQueries.sessions("t1/1", 100), 110),
  reading("abandoned sessions", SessionQueries.abandoned(node, 10_000), 3 * unfinished),
  reading("taken sessions", SessionQueries.taken(sessions, node), 110),
  reading("sessions elsewhere", SessionQueries.elsewhere(sessions, gone), 110),
  reading("the owner of a session", SessionQueries.owner("t1/1", gone), 5)
]

/** What a node asks once, when it starts. */
export const atStart: ReadonlyArray<Case> = [
  reading("unfinished sessions", SessionQueries.unfinished(node, 10_000), 3 * unfinished)
]
