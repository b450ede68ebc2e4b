/**
 * The schema of the store in PostgreSQL, which is the schema `causeway` of the database, and its steps.
 *
 * The files `*.sql.ts` have the texts of functions, whole. Once a step is released, it never changes: to change a
 * function then, copy its text into a file that keeps it for that step, and let a new step replace it by the new text.
 */
import { Context } from "effect"
import { commitGroup } from "./Schema/commit_group.sql.ts"
import { countEntries, foldCounts, namespacesView, tenantsView, waitingCounts } from "./Schema/counts.sql.ts"
import { advanceExpiry, deleteEntries, expire, lowerExpiry, removeEntries } from "./Schema/deletes.sql.ts"
import {
  commitKeyed,
  compareTenants,
  deleteTotals,
  lowerTotal,
  markGroup,
  recallWrites,
  rememberWrites,
  removeKeyed
} from "./Schema/idempotency.sql.ts"
import { epoch, identify, lockLog, position, pruneCommits, renewEpoch, trim } from "./Schema/log.sql.ts"
import { newEpoch, tenantOf } from "./Schema/SqlParts.ts"
import { isGone, renewLease, trimSessions, writeSessions } from "./Schema/sessions.sql.ts"

/** One step of the schema: statements that are executed once, in one transaction with the record of the step. */
export interface Migration {
  readonly name: string
  readonly statements: ReadonlyArray<string>
  /** The tables of earlier steps that it locks against writes, or also against reads. */
  readonly locks?: Readonly<
    Partial<Record<Lockable, "SHARE" | "SHARE ROW EXCLUSIVE" | "EXCLUSIVE" | "ACCESS EXCLUSIVE">>
  >
}

/**
 * The tables that steps may lock, in the order of the locks. Writers of entries lock `log` before the others, writers of
 * sessions lock `histories` before `nodes`, and both write to `commits` last.
 */
export const lockable = [
  "log",
  "entries",
  "base_namespaces",
  "base_tenants",
  "remembered_writes",
  "remembered_tenants",
  "histories",
  "nodes",
  "commits"
] as const

/** A table that a migration may lock. */
export type Lockable = (typeof lockable)[number]

/** The maximum bytes of a namespace and a key together: those of an index row, 2,704, without its header. */
export const maxNameBytes = 2660

const ofEntries: ReadonlyArray<string> = [
  // One row. A writer that adds records locks it until the end of the transaction. Only trims and changes of the epoch
  // update it, so that few versions of the row exist while a snapshot prevents their removal.
  `CREATE TABLE causeway.log (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row), epoch text NOT NULL, system_identifier text,
    history bigint NOT NULL DEFAULT 0, trimmed_seq bigint NOT NULL DEFAULT 0, timeline text
  ) WITH (fillfactor = 10)`,
  `INSERT INTO causeway.log (epoch) VALUES (${newEpoch})`,
  // Where the scans of background work start. The newest row of a name counts: an update would leave versions of one row.
  `CREATE TABLE causeway.positions (
    name text COLLATE "C" NOT NULL, id bigint NOT NULL, up_to bigint NOT NULL, PRIMARY KEY (name, id)
  )`,
  `INSERT INTO causeway.positions (name, id, up_to)
    VALUES ('expiry', 1, 0), ('counts', 1, 0), ('commits', 1, 0), ('idempotency', 1, 0), ('events', 1, 0)`,
  `CREATE TABLE causeway.entries (
    namespace text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL, version bigint NOT NULL,
    updated_at bigint NOT NULL, expires_at bigint, updated_by text NOT NULL, value text NOT NULL,
    PRIMARY KEY (namespace, key)
  )`,
  "CREATE INDEX entries_expiring ON causeway.entries (expires_at) WHERE expires_at IS NOT NULL",
  // Separate from the entries, so that lists never scan deleted keys.
  `CREATE TABLE causeway.tombstones (
    namespace text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL, version bigint NOT NULL,
    seq bigint NOT NULL, PRIMARY KEY (namespace, key)
  )`,
  "CREATE INDEX tombstones_by_seq ON causeway.tombstones (seq)",
  `CREATE TABLE causeway.changes (
    seq bigint PRIMARY KEY, version bigint NOT NULL, timestamp bigint NOT NULL, op text NOT NULL,
    namespace text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL, actor text NOT NULL,
    tenant text COLLATE "C" NOT NULL GENERATED ALWAYS AS (${tenantOf("namespace")}) STORED, value text
  )`,
  "CREATE INDEX changes_by_tenant ON causeway.changes (tenant, seq) WHERE tenant <> ''",
  // The results of committed writes, for a node that has lost the connection before it had the answer.
  `CREATE TABLE causeway.commits (
    id uuid PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp(), result text
  )`,
  "CREATE INDEX commits_by_age ON causeway.commits (at) WHERE result IS NOT NULL",
  "CREATE INDEX fences_by_age ON causeway.commits (at) WHERE result IS NULL",
  // The numbers of entries, up to the position `counts`. Later changes of them wait in `count_changes`.
  `CREATE TABLE causeway.base_namespaces (
    namespace text COLLATE "C" NOT NULL PRIMARY KEY, entries bigint NOT NULL
  ) WITH (fillfactor = 50)`,
  `CREATE TABLE causeway.base_tenants (
    tenant text COLLATE "C" NOT NULL PRIMARY KEY, namespaces bigint NOT NULL, entries bigint NOT NULL
  ) WITH (fillfactor = 50)`,
  `CREATE TABLE causeway.count_changes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, namespace text COLLATE "C" NOT NULL, entries bigint NOT NULL
  )`,
  // Rows are ordered by the bytes of all rows up to each, so that the bytes of all follow from the first and the last.
  `CREATE TABLE causeway.remembered_writes (
    up_to bigint PRIMARY KEY, id text COLLATE "C" NOT NULL UNIQUE, digest text NOT NULL, kept_at bigint NOT NULL,
    outcome text NOT NULL, tenant text COLLATE "C" NOT NULL DEFAULT ''
  )`,
  "CREATE INDEX remembered_writes_by_tenant ON causeway.remembered_writes (tenant, up_to)",
  // The bytes of each tenant, and the position of its last write. The newest row of a tenant counts.
  `CREATE TABLE causeway.remembered_tenants (
    tenant text COLLATE "C" NOT NULL, bytes bigint NOT NULL, up_to bigint NOT NULL, PRIMARY KEY (tenant, up_to)
  ) WITH (fillfactor = 50)`
]

const ofSessions: ReadonlyArray<string> = [
  // The nodes that own sessions. One whose lease has ended without renewal is gone, and so is one without a row.
  `CREATE TABLE causeway.nodes (
    id uuid PRIMARY KEY,
    -- Since when the lease was renewed in time.
    since timestamptz NOT NULL, expires_at timestamptz NOT NULL,
    -- How often the lease had ended before it was renewed.
    lapses bigint NOT NULL DEFAULT 0,
    -- Where the node takes requests of other nodes.
    address text,
    -- How often the lease was renewed.
    renewals bigint NOT NULL DEFAULT 0,
    -- The length of the lease in milliseconds.
    lease bigint NOT NULL DEFAULT 60000
  ) WITH (fillfactor = 50)`,
  // No two owners ever have the same token.
  "CREATE SEQUENCE causeway.session_tokens",
  // Most updates leave the indexed columns unchanged, and so add no index entries if the page has room.
  `CREATE TABLE causeway.histories (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, session text COLLATE "C" NOT NULL UNIQUE,
    epoch text NOT NULL, head bigint NOT NULL DEFAULT 0, trimmed bigint NOT NULL DEFAULT 0,
    bytes bigint NOT NULL DEFAULT 0, owner uuid, token bigint, recovery_state text,
    -- The epoch of the database in which the history was last opened; null before that.
    database_epoch text
  ) WITH (fillfactor = 50)`,
  "CREATE INDEX histories_unfinished ON causeway.histories (owner, id) WHERE recovery_state IS NOT NULL",
  `CREATE TABLE causeway.events (
    history bigint NOT NULL, seq bigint NOT NULL, timestamp bigint NOT NULL, size integer NOT NULL,
    text text NOT NULL, PRIMARY KEY (history, seq)
  )`,
  "CREATE INDEX events_by_age ON causeway.events (timestamp)",
  `CREATE TABLE causeway.receipts (
    history bigint NOT NULL, id text COLLATE "C" NOT NULL, seq bigint NOT NULL,
    place bigint GENERATED BY DEFAULT AS IDENTITY, digest text NOT NULL, turn text, PRIMARY KEY (history, id)
  )`,
  "CREATE INDEX receipts_by_age ON causeway.receipts (history, seq, place)",
  `CREATE TABLE causeway.launch_configurations (
    session text COLLATE "C" NOT NULL PRIMARY KEY, environment text, deployment text
  )`,
  // A cache of the conversation of a history, of which nodes write the newest without owning it.
  `CREATE TABLE causeway.checkpoints (
    history bigint PRIMARY KEY, seq bigint NOT NULL, epoch text NOT NULL, text text NOT NULL
  )`
]

/** LZ4 takes a fraction of the time of the default; not every server is built with it. */
const compression = `DO $$ BEGIN
  ALTER TABLE causeway.entries ALTER COLUMN value SET COMPRESSION lz4;
  ALTER TABLE causeway.changes ALTER COLUMN value SET COMPRESSION lz4;
  ALTER TABLE causeway.events ALTER COLUMN text SET COMPRESSION lz4;
  ALTER TABLE causeway.histories ALTER COLUMN recovery_state SET COMPRESSION lz4;
  ALTER TABLE causeway.checkpoints ALTER COLUMN text SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN NULL; END $$`

/** A text in SQL is checked when it is created: what it calls comes before it. */
const functions: ReadonlyArray<string> = [
  ...[lockLog, position, epoch, identify, renewEpoch, trim],
  ...[deleteEntries, expire, advanceExpiry, lowerExpiry],
  ...[waitingCounts, namespacesView, tenantsView, countEntries, foldCounts],
  ...[commitGroup, removeEntries, pruneCommits],
  ...[deleteTotals, lowerTotal, compareTenants, recallWrites, rememberWrites, markGroup, commitKeyed, removeKeyed],
  ...[renewLease, isGone, writeSessions, trimSessions]
]

const triggers: ReadonlyArray<string> = [
  // Each of them counts the rows of a whole statement.
  `CREATE TRIGGER entries_inserted AFTER INSERT ON causeway.entries
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION causeway.count_entries()`,
  `CREATE TRIGGER entries_deleted AFTER DELETE ON causeway.entries
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION causeway.count_entries()`,
  `CREATE TRIGGER entries_truncated AFTER TRUNCATE ON causeway.entries
    FOR EACH STATEMENT EXECUTE FUNCTION causeway.count_entries()`,
  // The clock of the database is for rows that are written by hand, with any time.
  `CREATE TRIGGER entries_born_expired AFTER INSERT OR UPDATE OF expires_at ON causeway.entries FOR EACH ROW
    WHEN (NEW.expires_at IS NOT NULL
      AND NEW.expires_at <= greatest(NEW.updated_at, (extract(epoch FROM clock_timestamp()) * 1000)::bigint))
    EXECUTE FUNCTION causeway.lower_expiry()`,
  `CREATE TRIGGER entries_truncated_expiry AFTER TRUNCATE ON causeway.entries
    FOR EACH STATEMENT EXECUTE FUNCTION causeway.lower_expiry()`
]

/** All steps, in order. */
export const migrations: ReadonlyArray<Migration> = [
  { name: "first release", statements: [...ofEntries, ...ofSessions, compression, ...functions, ...triggers] }
]

/** The steps that a database is brought up to. Tests add later ones. */
export class Migrations extends Context.Reference<Migrations>()("causeway/Storage/Postgres/Migrations", {
  defaultValue: (): ReadonlyArray<Migration> => migrations
}) {}
