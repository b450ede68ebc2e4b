/** Statements that write, with what they may read. */
import { randomUUID } from "node:crypto"
import type { Write } from "../../../../src/Kv/Write.ts"
import * as WriteCalls from "../../../../src/Storage/Postgres/Kv/Writer.ts"
import * as SessionQueries from "../../../../src/Storage/Postgres/SessionEvents/SessionQueries.ts"
import * as SessionWriter from "../../../../src/Storage/Postgres/SessionEvents/SessionWriter.ts"
import { del, set } from "../../../suites/Store/Fixture.ts"
import { type Case, calling, reading } from "./Case.ts"
import { gone, node, now } from "./Content.ts"

const committing = (title: string, writes: ReadonlyArray<Write>, most: number): Case =>
  calling("commit_group", [randomUUID(), now, false, ...WriteCalls.encodeGroup(writes)], most, title)

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

const holder: SessionWriter.LeaseHolder = { node, lease: 10_000, tokenOf: session => Number(session.split("/")[1]) }

const appending = (title: string, session: string, after: number, most: number): Case =>
  calling(
    "write_sessions",
    [
      randomUUID(),
      ...SessionWriter.encode(
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
export const writes: ReadonlyArray<Case> = [
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
  calling("remove_entries", [randomUUID(), now, ...WriteCalls.encodePrefixDelete(removing, "tester")], 6000),
  calling(
    "commit_keyed",
    [
      ...[randomUUID(), now, false, ...WriteCalls.encodeGroup(keyed)],
      ...WriteCalls.encodeKeys(keyed, { limitBytes: 1e9, compares: true })
    ],
    50
  ),
  calling(
    "commit_keyed",
    [
      ...[randomUUID(), now, false, ...WriteCalls.encodeGroup(keyed.slice(1))],
      ...WriteCalls.encodeKeys(keyed.slice(1), { limitBytes: 1e9, compares: true })
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
      ...SessionWriter.encode(
        [
          { op: "open", session: "t3/3", epoch: "e" },
          { op: "open", session: "new/1", epoch: "e" },
          { op: "renewEpoch", session: "t5/5", epoch: "e" },
          { op: "configure", session: "t5/5", configuration: { environment: "{}", deployment: null } },
          { op: "remove", session: "t7/7" },
          { op: "release", session: "t9/9", token: 9 }
        ],
        holder,
        { events: 10_000, bytes: 1e9 }
      ).parameters
    ],
    50,
    "openings, new epochs, removals and releases of sessions"
  ),
  reading("storing a checkpoint", SessionQueries.saveCheckpoint("t1/1", { epoch: "e", seq: 2, text: "{}" }), 5),
  reading("adopting a session", SessionQueries.adopt("t1001/1001", { node: gone, token: 1 }, { node, token: 1001 }), 5),
  // A session has thousands of receipts.
  calling("trim_sessions", [10_000, 500], 10_000),
  calling("trim_sessions", [1, 500], 5, "trim_sessions of nothing")
]
