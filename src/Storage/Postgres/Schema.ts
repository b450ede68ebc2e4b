/**
 * The schema of the store in PostgreSQL. Its parts are in the schema `causeway` of the database.
 */

import { newEpoch } from "./Database/Epoch.ts"
import { commitFunction, timedCommitFunction } from "./Kv/CommitFunction.ts"
import * as Counts from "./Kv/Counts.ts"
import * as Expiry from "./Kv/Expiry.ts"
import * as IdempotencyRecords from "./Kv/IdempotencyRecords.ts"
import * as IdempotencyShares from "./Kv/IdempotencyShares.ts"
import * as Namespaces from "./Kv/Namespaces.ts"
import { removeFunction } from "./Kv/Removal.ts"
import * as SessionEvents from "./SessionEvents/Schema.ts"

/** One step of the schema: statements that are applied once, in one transaction with the record that they were. */
export interface Migration {
  readonly name: string
  readonly statements: ReadonlyArray<string>
  /** The tables of earlier steps that it locks against writes, or against reads too. */
  readonly locks?: Readonly<Partial<Record<Lockable, "SHARE ROW EXCLUSIVE" | "ACCESS EXCLUSIVE">>>
}

/**
 * Such tables, in the order in which they are locked: writers of entries have a lock of `log` before those of others, and
 * writers of sessions one of `histories` before that of `nodes`.
 */
export const lockable = ["log", "entries", "namespaces", "tenants", "remembered_writes", "histories", "nodes"] as const

export type Lockable = (typeof lockable)[number]

/** Bytes of a namespace and a key that an index can hold together; the rest of 2,704 is its own. */
export const maxNameBytes = 2660

/** Names are compared by their bytes. */
const name = 'text COLLATE "C" NOT NULL'

const tables: ReadonlyArray<string> = [
  // One row. Who adds records locks it until the end of the transaction. Its values change with trims only, so that no
  // versions of the row pile up while a long read keeps them from being removed.
  `CREATE TABLE causeway.log (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    epoch text NOT NULL,
    system_identifier text,
    history bigint NOT NULL DEFAULT 0,
    trimmed_seq bigint NOT NULL DEFAULT 0
  ) WITH (fillfactor = 10)`,
  `INSERT INTO causeway.log (epoch) VALUES (${newEpoch})`,
  `CREATE TABLE causeway.entries (
    namespace ${name},
    key ${name},
    version bigint NOT NULL,
    updated_at bigint NOT NULL,
    expires_at bigint,
    updated_by text NOT NULL,
    value text NOT NULL,
    PRIMARY KEY (namespace, key)
  )`,
  "CREATE INDEX entries_expiring ON causeway.entries (expires_at) WHERE expires_at IS NOT NULL",
  // Apart from the entries, so that lists never scan deleted keys.
  `CREATE TABLE causeway.tombstones (
    namespace ${name},
    key ${name},
    version bigint NOT NULL,
    seq bigint NOT NULL,
    PRIMARY KEY (namespace, key)
  )`,
  "CREATE INDEX tombstones_by_seq ON causeway.tombstones (seq)",
  `CREATE TABLE causeway.changes (
    seq bigint PRIMARY KEY,
    version bigint NOT NULL,
    timestamp bigint NOT NULL,
    op text NOT NULL,
    namespace ${name},
    key ${name},
    actor text NOT NULL,
    tenant text COLLATE "C" NOT NULL GENERATED ALWAYS AS (
      CASE WHEN starts_with(namespace, 'tenant:') THEN split_part(substr(namespace, 8), '/', 1) ELSE '' END
    ) STORED,
    value text
  )`,
  "CREATE INDEX changes_by_tenant ON causeway.changes (tenant, seq) WHERE tenant <> ''",
  // The groups of writes that were committed, for a node that has lost the connection before it had the answer.
  `CREATE TABLE causeway.commits (
    id uuid PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    result text
  )`,
  // LZ4 takes a fraction of the time of the default; not every server is built with it.
  `DO $$ BEGIN
    ALTER TABLE causeway.entries ALTER COLUMN value SET COMPRESSION lz4;
    ALTER TABLE causeway.changes ALTER COLUMN value SET COMPRESSION lz4;
  EXCEPTION WHEN feature_not_supported THEN NULL; END $$`
]

/** Deletes entries that have expired, those first that expired first. Returns how many, and the last `seq`. */
const expireFunction = `
CREATE FUNCTION causeway.expire(now bigint, portion integer, OUT expired bigint, OUT last_seq bigint)
LANGUAGE plpgsql
SET enable_seqscan = off
AS $function$
DECLARE
  base bigint;
  stamp bigint;
BEGIN
  expired := 0;
  PERFORM FROM causeway.entries e WHERE e.expires_at <= now LIMIT 1;
  IF NOT FOUND THEN RETURN; END IF;
  PERFORM FROM causeway.log FOR UPDATE;
  SELECT c.seq, greatest(now, c.timestamp) INTO base, stamp FROM causeway.changes c ORDER BY c.seq DESC LIMIT 1;
  WITH due AS MATERIALIZED (
    SELECT d.*, row_number() OVER (ORDER BY d.expires_at, d.namespace, d.key) AS position
    FROM (
      SELECT e.namespace, e.key, e.version, e.expires_at FROM causeway.entries e
      WHERE e.expires_at <= now ORDER BY e.expires_at LIMIT portion
    ) d
  ), deleted AS (
    DELETE FROM causeway.entries e USING due d WHERE e.namespace = d.namespace AND e.key = d.key
  ), marked AS (
    INSERT INTO causeway.tombstones (namespace, key, version, seq)
    SELECT d.namespace, d.key, d.version + 1, base + d.position FROM due d
  )
  INSERT INTO causeway.changes (seq, op, namespace, key, version, actor, timestamp)
  SELECT base + d.position, 'delete', d.namespace, d.key, d.version + 1, 'expiry', stamp FROM due d;
  GET DIAGNOSTICS expired = ROW_COUNT;
  last_seq := base + expired;
END
$function$`

/**
 * Removes the oldest records, but never the newest, with the tombstones that they made. Returns how many of at most
 * `portion` were removed.
 */
const trimFunction = `
CREATE FUNCTION causeway.trim(before bigint, portion integer) RETURNS bigint
LANGUAGE plpgsql
SET enable_seqscan = off
AS $function$
DECLARE
  first bigint;
  up_to bigint;
BEGIN
  SELECT l.trimmed_seq INTO first FROM causeway.log l FOR UPDATE;
  SELECT max(c.seq) INTO up_to
  FROM (SELECT o.seq, o.timestamp FROM causeway.changes o WHERE o.seq > first ORDER BY o.seq LIMIT portion) c
  WHERE c.timestamp < before;
  IF up_to IS NULL THEN RETURN 0; END IF;
  SELECT least(up_to, max(c.seq) - 1) INTO up_to FROM causeway.changes c;
  IF up_to <= first THEN RETURN 0; END IF;
  DELETE FROM causeway.tombstones t WHERE t.seq <= up_to;
  DELETE FROM causeway.changes c WHERE c.seq > first AND c.seq <= up_to;
  UPDATE causeway.log SET trimmed_seq = up_to, history = history + 1;
  RETURN up_to - first;
END
$function$`

/**
 * Which log this is: the stored epoch and the timeline of the server, which is another one after each fail-over and each
 * recovery to a point in time. Where the role lacks the right to know the timeline, the stored epoch alone.
 */
const epochFunction = `
CREATE FUNCTION causeway.epoch() RETURNS text
LANGUAGE plpgsql STABLE
AS $function$
DECLARE
  stored text;
BEGIN
  SELECT l.epoch INTO stored FROM causeway.log l;
  BEGIN
    RETURN stored || '.' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8);
  EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_function THEN
    RETURN stored;
  END;
END
$function$`

/**
 * Makes a new epoch where the database is part of another cluster than before, as after a restore of a dump. Returns
 * whether the cluster and its timeline can be known.
 */
const identifyFunction = `
CREATE FUNCTION causeway.identify() RETURNS boolean
LANGUAGE plpgsql
AS $function$
DECLARE
  identifier text;
  is_known boolean;
BEGIN
  SELECT s.system_identifier::text INTO identifier FROM pg_control_system() s;
  UPDATE causeway.log l
  SET epoch = CASE WHEN l.system_identifier IS NULL THEN l.epoch ELSE ${newEpoch} END,
    system_identifier = identifier, history = l.history + 1
  WHERE l.system_identifier IS DISTINCT FROM identifier;
  SELECT causeway.epoch() <> l.epoch INTO is_known FROM causeway.log l;
  RETURN is_known;
EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_function THEN
  RETURN false;
END
$function$`

/** Makes a new epoch, for those who replace the content of the database by a dump of the same cluster. */
const renewFunction = `
CREATE FUNCTION causeway.renew_epoch() RETURNS text
LANGUAGE sql
AS $function$
  UPDATE causeway.log SET epoch = ${newEpoch}, history = history + 1;
  SELECT causeway.epoch();
$function$`

/**
 * How many rows of `entries` each namespace has. Triggers keep it: whoever adds rows or deletes them, a node of an
 * earlier version included. Each runs once for a statement.
 */
const namespaces: ReadonlyArray<string> = [
  `CREATE TABLE causeway.namespaces (namespace ${name} PRIMARY KEY, entries bigint NOT NULL) WITH (fillfactor = 50)`,
  `CREATE FUNCTION causeway.count_entries() RETURNS trigger
  LANGUAGE plpgsql
  AS $function$
  BEGIN
    IF TG_OP = 'INSERT' THEN
      INSERT INTO causeway.namespaces AS n (namespace, entries)
      SELECT c.namespace, count(*) FROM changed c GROUP BY c.namespace ORDER BY c.namespace
      ON CONFLICT (namespace) DO UPDATE SET entries = n.entries + excluded.entries;
    ELSIF TG_OP = 'DELETE' THEN
      UPDATE causeway.namespaces n SET entries = n.entries - d.entries
      FROM (SELECT c.namespace, count(*) AS entries FROM changed c GROUP BY c.namespace) d
      WHERE n.namespace = d.namespace;
      DELETE FROM causeway.namespaces n
      USING (SELECT DISTINCT c.namespace FROM changed c) d
      WHERE n.namespace = d.namespace AND n.entries <= 0;
    ELSE
      DELETE FROM causeway.namespaces;
    END IF;
    RETURN NULL;
  END
  $function$`,
  `CREATE TRIGGER entries_inserted AFTER INSERT ON causeway.entries
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION causeway.count_entries()`,
  `CREATE TRIGGER entries_deleted AFTER DELETE ON causeway.entries
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION causeway.count_entries()`,
  `CREATE TRIGGER entries_truncated AFTER TRUNCATE ON causeway.entries
    FOR EACH STATEMENT EXECUTE FUNCTION causeway.count_entries()`,
  "INSERT INTO causeway.namespaces (namespace, entries) SELECT namespace, count(*) FROM causeway.entries GROUP BY namespace"
]

/**
 * The timeline on which the database was last, and a function that makes a new epoch where it is on another one: two
 * standbys that share no archive are promoted to timelines of the same number.
 */
const timelines: ReadonlyArray<string> = [
  "ALTER TABLE causeway.log ADD COLUMN timeline text",
  `CREATE OR REPLACE FUNCTION causeway.identify() RETURNS boolean
  LANGUAGE plpgsql
  AS $function$
  DECLARE
    identifier text;
    current_timeline text;
  BEGIN
    SELECT s.system_identifier::text INTO identifier FROM pg_control_system() s;
    BEGIN
      current_timeline := left(pg_walfile_name(pg_current_wal_insert_lsn()), 8);
    EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_function THEN
      NULL;
    END;
    UPDATE causeway.log l
    SET epoch = CASE WHEN l.system_identifier <> identifier OR l.timeline <> current_timeline THEN ${newEpoch} ELSE l.epoch END,
      system_identifier = identifier, timeline = coalesce(current_timeline, l.timeline), history = l.history + 1
    WHERE l.system_identifier IS DISTINCT FROM identifier
      OR current_timeline IS NOT NULL AND l.timeline IS DISTINCT FROM current_timeline;
    RETURN current_timeline IS NOT NULL;
  EXCEPTION WHEN insufficient_privilege OR feature_not_supported OR undefined_function THEN
    RETURN false;
  END
  $function$`
]

/**
 * A scan that is switched off, as of a table without an index, counts as so expensive that the server compiles the plan:
 * this took a fourth of a second for a new connection, under the lock that all writers wait for.
 */
const uncompiled: ReadonlyArray<string> = [
  "ALTER FUNCTION causeway.expire(bigint, integer) SET jit = off",
  "ALTER FUNCTION causeway.trim(bigint, integer) SET jit = off",
  "ALTER FUNCTION causeway.trim_sessions(bigint, integer) SET jit = off"
]

/** All steps, in order. A step that was released is never changed. */
export const migrations: ReadonlyArray<Migration> = [
  {
    name: "initial",
    statements: [
      ...tables,
      commitFunction,
      expireFunction,
      trimFunction,
      epochFunction,
      identifyFunction,
      renewFunction
    ]
  },
  { name: "sessions", statements: SessionEvents.statements },
  { name: "addresses of nodes", statements: SessionEvents.nodeStatements, locks: { nodes: "ACCESS EXCLUSIVE" } },
  { name: "namespaces", statements: namespaces, locks: { entries: "SHARE ROW EXCLUSIVE" } },
  { name: "removals", statements: [removeFunction] },
  { name: "timelines", statements: timelines, locks: { log: "ACCESS EXCLUSIVE" } },
  { name: "functions without compilation", statements: uncompiled },
  { name: "counted renewals", statements: SessionEvents.renewalStatements, locks: { nodes: "ACCESS EXCLUSIVE" } },
  { name: "remembered writes", statements: IdempotencyRecords.statements },
  { name: "lock waits", statements: [timedCommitFunction] },
  { name: "lock waits with idempotency keys", statements: [IdempotencyRecords.timedCommitKeyed] },
  { name: "lengths of leases", statements: SessionEvents.leaseStatements, locks: { nodes: "ACCESS EXCLUSIVE" } },
  { name: "epochs of histories", statements: SessionEvents.epochStatements, locks: { histories: "ACCESS EXCLUSIVE" } },
  {
    name: "shares of remembered writes",
    statements: IdempotencyShares.statements,
    locks: { remembered_writes: "ACCESS EXCLUSIVE" }
  },
  { name: "keys of refused writes", statements: IdempotencyRecords.checkedCommitKeyed },
  { name: "tenants", statements: Namespaces.statements, locks: { entries: "SHARE ROW EXCLUSIVE" } },
  { name: "looking up what is counted", statements: Namespaces.lookUpStatements },
  { name: "position of expiry", statements: Expiry.statements, locks: { entries: "SHARE ROW EXCLUSIVE" } },
  {
    name: "changes of counts",
    statements: Counts.statements,
    locks: { entries: "SHARE ROW EXCLUSIVE", namespaces: "ACCESS EXCLUSIVE", tenants: "ACCESS EXCLUSIVE" }
  }
]
