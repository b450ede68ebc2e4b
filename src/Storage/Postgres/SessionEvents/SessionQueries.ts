/** The queries of the session event log. Each is one statement, and so reads one snapshot. */
import { constVoid } from "effect/Function"
import { activityOf, matching, positionOf } from "../../../Gateway/SessionEvents/ActivityBits.ts"
import {
  type ActivePosition,
  type ActiveQuery,
  type ActivityCount,
  type Checkpoint,
  type EventPage,
  type History,
  type LaunchConfiguration,
  pageCharacters,
  pageOf,
  type Receipt,
  type StoredEvent,
  type Summary,
  type Unfinished
} from "../../../Gateway/SessionEvents.ts"
import type { Peer, ReachablePeer, SessionOwner } from "../../../Gateway/SessionNodes.ts"
import { bigintArray, calling, first, type Query, textArray } from "../Database/Statement.ts"
import { lastEventAt } from "../Schema/sessions.sql.ts"

type HistoryRow = readonly [epoch: string, head: number, trimmed: number, recoveryState: string | null]

const historyOf = ([epoch, headSeq, trimmedSeq, recoveryState]: HistoryRow): History => ({
  epoch,
  headSeq,
  trimmedSeq,
  recoveryState
})

/** Adds an empty history, unless the session has one. `at` is the time in epoch milliseconds. */
export const create = (session: string, epoch: string, at: number): Query<void> => ({
  text: `INSERT INTO causeway.histories (session, epoch, active_at, database_epoch)
    VALUES ($1, $2, $3, causeway.epoch()) ON CONFLICT (session) DO NOTHING`,
  values: [session, epoch, at],
  decode: constVoid
})

/** Removes up to `portion` events from before a time in epoch milliseconds. Returns how many. */
export const trim = (before: number, portion: number): Query<number> =>
  calling("trim_sessions", [before, portion], first<number>)

export const find = (session: string): Query<History | undefined> => ({
  text: "SELECT epoch, head, trimmed, recovery_state FROM causeway.histories WHERE session = $1",
  values: [session],
  decode: ([row]) => (row === undefined ? undefined : historyOf(row as HistoryRow))
})

/** The maximum number of bytes in UTF-8 for each UTF-16 code unit. */
const bytesOfCharacter = 3

/** Up to `limit` events of a session after a number, with its history. */
export const page = (session: string, after: number, limit: number): Query<EventPage | undefined> => ({
  // An event has at most as many characters as bytes, so that a page with the bytes below has all characters it may have.
  text: `SELECT h.epoch, h.head, h.trimmed, h.recovery_state, e.seq, e.text FROM causeway.histories h
    LEFT JOIN LATERAL (
      SELECT seq, text FROM (
        SELECT seq, text, size, sum(size) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING) AS total FROM (
          SELECT seq, text, size FROM causeway.events
          WHERE history = h.id AND seq > greatest($2, h.trimmed) ORDER BY seq LIMIT $3
        ) selected
      ) summed WHERE total - size < $4
    ) e ON true
    WHERE h.session = $1 ORDER BY e.seq`,
  values: [session, after, limit, pageCharacters * bytesOfCharacter],
  decode: rows => {
    const [first] = rows
    if (first === undefined) return undefined
    // For a history without such events, the result is one row without an event.
    const found = (rows as ReadonlyArray<readonly [...HistoryRow, number | null, string]>).flatMap(
      ([, , , , seq, text]): ReadonlyArray<StoredEvent> => (seq === null ? [] : [{ seq, text }])
    )
    return { events: pageOf(found), history: historyOf(first as HistoryRow) }
  }
})

/** The id of a receipt as it is stored: a JSON text, as the database accepts neither U+0000 nor a lone surrogate. */
export const storedId = (id: string): string => JSON.stringify(id)

export const receipt = (session: string, id: string): Query<Receipt | undefined> => ({
  text: `SELECT r.digest, r.turn FROM causeway.receipts r JOIN causeway.histories h ON h.id = r.history
    WHERE h.session = $1 AND r.id = $2`,
  values: [session, storedId(id)],
  decode: ([row]) => {
    if (row === undefined) return undefined
    const [digest, turnId] = row as readonly [string, string | null]
    return { id, digest, turnId }
  }
})

export const checkpoint = (session: string): Query<Checkpoint | undefined> => ({
  text: `SELECT c.epoch, c.seq, c.text FROM causeway.checkpoints c JOIN causeway.histories h ON h.id = c.history
    WHERE h.session = $1`,
  values: [session],
  decode: ([row]) => {
    if (row === undefined) return undefined
    const [epoch, seq, text] = row as readonly [string, number, string]
    return { epoch, seq, text }
  }
})

/** Stores a checkpoint, unless the history is another one or there is a newer checkpoint. */
export const saveCheckpoint = (session: string, { epoch, seq, text }: Checkpoint): Query<void> => ({
  // The lock of the row prevents that the history is removed at the same time, which would leave the checkpoint.
  text: `INSERT INTO causeway.checkpoints AS c (history, seq, epoch, text)
    SELECT h.id, $3::bigint, h.epoch, $4::text FROM causeway.histories h
    WHERE h.session = $1 AND h.epoch = $2 AND h.head >= $3::bigint FOR KEY SHARE
    ON CONFLICT (history) DO UPDATE SET seq = excluded.seq, epoch = excluded.epoch, text = excluded.text
    WHERE c.epoch <> excluded.epoch OR c.seq <= excluded.seq`,
  values: [session, epoch, seq, text],
  decode: constVoid
})

export const configuration = (session: string): Query<LaunchConfiguration> => ({
  text: "SELECT environment, deployment FROM causeway.launch_configurations WHERE session = $1",
  values: [session],
  decode: ([row]) => {
    const [environment, deployment] = (row ?? [null, null]) as readonly [string | null, string | null]
    return { environment, deployment }
  }
})

export const summaries = (sessions: ReadonlyArray<string>): Query<ReadonlyArray<Summary>> => ({
  text: `SELECT h.head, ${lastEventAt}, coalesce(h.activity, 0), c.environment IS NOT NULL, c.deployment IS NOT NULL
    FROM unnest($1::text[]) WITH ORDINALITY s(session, position)
    LEFT JOIN causeway.histories h ON h.session = s.session
    LEFT JOIN causeway.launch_configurations c ON c.session = s.session
    ORDER BY s.position`,
  values: [textArray(sessions)],
  decode: rows =>
    (rows as ReadonlyArray<readonly [number | null, number | null, number, boolean, boolean]>).map(
      ([headSeq, lastEventAt, activity, hasEnvironment, hasDeployment]) => ({
        ...{ headSeq, lastEventAt, ...activityOf(activity), hasEnvironment, hasDeployment }
      })
    )
})

/** The sessions of a tenant by their activity. */
export const active = (query: ActiveQuery): Query<ReadonlyArray<ActivePosition>> => {
  const { at, isBefore, session } = positionOf(query)
  const [comparison, order] = isBefore ? ["<", "DESC"] : [">", "ASC"]
  return {
    // The planner knows how often a value occurs, and so whether a scan in the order of the index ends early.
    text: `SELECT active_at, session FROM causeway.histories
      WHERE tenant = $1 AND (active_at, session) ${comparison} ($2, $3) AND activity = ANY ($4::bigint[])
      ORDER BY active_at ${order}, session ${order} LIMIT $5`,
    values: [query.tenant, at, session, bigintArray(matching(query.filter)), query.limit],
    decode: rows => (rows as ReadonlyArray<readonly [number, string]>).map(([at, session]) => ({ at, session }))
  }
}

/** The numbers of at most `limit` sessions by tenant and activity. */
export const counts = (limit: number, tenant?: string): Query<ReadonlyArray<ActivityCount>> => ({
  text: `SELECT tenant, activity, count(*) FROM (
      SELECT tenant, activity FROM causeway.histories ${tenant === undefined ? "" : "WHERE tenant = $2"}
      ORDER BY tenant LIMIT $1
    ) counted GROUP BY tenant, activity`,
  values: tenant === undefined ? [limit] : [limit, tenant],
  decode: rows =>
    (rows as ReadonlyArray<readonly [string, number, number]>).map(([tenant, activity, count]) => ({
      ...{ tenant, ...activityOf(activity), count }
    }))
})

/** Sessions of which a history or a launch configuration is stored, after another one. */
export const sessions = (after: string, limit: number): Query<ReadonlyArray<string>> => ({
  text: `(SELECT session FROM causeway.histories WHERE session > $1 ORDER BY session LIMIT $2)
    UNION
    (SELECT session FROM causeway.launch_configurations WHERE session > $1 ORDER BY session LIMIT $2)
    ORDER BY session LIMIT $2`,
  values: [after, limit],
  decode: rows => rows.map(([session]) => session as string)
})

/** Sessions with a recovery state that a node may open. There may be many sessions, but few owners. */
const unfinishedOf =
  (condition: string, order: string, limit: number) =>
  (node: string, lease: number): Query<ReadonlyArray<Unfinished>> => ({
    text: `WITH owners AS MATERIALIZED (
        SELECT DISTINCT owner FROM causeway.histories WHERE recovery_state IS NOT NULL
      ), open_owners AS MATERIALIZED (
        SELECT owner FROM owners WHERE owner IS NULL OR ${condition} causeway.is_gone(owner, $1, $2)
      )
      SELECT h.session, h.recovery_state FROM open_owners o
      JOIN causeway.histories h ON h.owner IS NOT DISTINCT FROM o.owner
      WHERE h.recovery_state IS NOT NULL ORDER BY ${order} LIMIT $3`,
    values: [node, lease, limit],
    decode: rows =>
      (rows as ReadonlyArray<readonly [string, string]>).map(([session, recoveryState]) => ({ session, recoveryState }))
  })

/** Sessions with a recovery state that this node owned, or may take over. `lease` is in milliseconds. */
export const unfinished = unfinishedOf("owner = $1 OR", "h.id", 1_000_000)

/**
 * Sessions with a recovery state whose nodes are gone. `lease` is in milliseconds. The next query finds those above the
 * limit. Each node has a different order, so that nodes that take sessions over do not start with the same ones.
 */
export const abandoned = unfinishedOf("owner <> $1 AND", "hashint8extended(h.id, uuid_hash_extended($1, 0))", 1000)

/** Returns those of `sessions` that do not belong to a node any longer. */
export const taken = (sessions: ReadonlyArray<string>, node: string): Query<ReadonlyArray<string>> => ({
  text: `SELECT h.session FROM unnest($1::text[]) s(session) JOIN causeway.histories h ON h.session = s.session
    WHERE h.owner IS DISTINCT FROM $2`,
  values: [textArray(sessions), node],
  decode: rows => rows.map(([session]) => session as string)
})

/** The other node that owns a session, if its lease is valid. */
export const owner = (session: string, node: string): Query<Peer | undefined> => ({
  text: `SELECT n.id, n.address FROM causeway.histories h JOIN causeway.nodes n ON n.id = h.owner
    WHERE h.session = $1 AND n.id <> $2 AND n.expires_at > clock_timestamp()`,
  values: [session, node],
  decode: ([row]) => {
    if (row === undefined) return undefined
    const [owner, address] = row as readonly [string, string | null]
    return { node: owner, address }
  }
})

/** The other nodes that accept requests. */
export const peers = (node: string): Query<ReadonlyArray<ReachablePeer>> => ({
  text: `SELECT id, address FROM causeway.nodes
    WHERE id <> $1 AND address IS NOT NULL AND expires_at > clock_timestamp() ORDER BY id`,
  values: [node],
  decode: rows => (rows as ReadonlyArray<readonly [string, string]>).map(([peer, address]) => ({ node: peer, address }))
})

/** A new fencing token, which no owner of a session has had. */
export const nextToken: Query<number> = {
  text: "SELECT nextval('causeway.session_tokens')",
  values: [],
  decode: first
}

/** Moves a session without a recovery state from its owner to another node. Returns false if the owner has changed. */
export const adopt = (session: string, to: SessionOwner, from: SessionOwner): Query<boolean> => ({
  text: `UPDATE causeway.histories SET owner = $2, token = $3
    WHERE session = $1 AND owner = $4 AND token = $5 AND recovery_state IS NULL RETURNING 1`,
  values: [session, to.node, to.token, from.node, from.token],
  decode: rows => rows.length > 0
})

/** Returns those of `sessions` that belong to other nodes with valid leases. */
export const elsewhere = (sessions: ReadonlyArray<string>, node: string): Query<ReadonlyArray<string>> => ({
  text: `SELECT h.session FROM unnest($1::text[]) s(session) JOIN causeway.histories h ON h.session = s.session
    JOIN causeway.nodes n ON n.id = h.owner WHERE n.id <> $2 AND n.expires_at > clock_timestamp()`,
  values: [textArray(sessions), node],
  decode: rows => rows.map(([session]) => session as string)
})
