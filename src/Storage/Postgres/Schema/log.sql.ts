/**
 * The functions of the change log as a whole, its epoch and its retention, and those of positions and commit records.
 */
import { byIndex, newEpoch, plpgsql, readPosition, without } from "./SqlParts.ts"

/**
 * Returns the position of a name, from which scans start: no live row has this value or a lesser one. `expiry` is in
 * epoch milliseconds, `counts` an id of `count_changes`, `commits` in epoch microseconds, `idempotency` an `up_to` of
 * `remembered_writes`, and `events` in epoch milliseconds. A deleted row stays in its index as long as a snapshot from
 * before is held, and a scan that starts at the least value visits all such rows.
 *
 * A new row with the next id moves a position. An update would leave versions of one row, all of which each reader
 * visits; the row with the greatest id is found without visiting those before it. A lock protects each move.
 *
 * It is a function, so that its scan starts at the newest row under all settings.
 */
export const position = plpgsql("position(position_name text) RETURNS bigint", "STABLE", byIndex)`
BEGIN
  RETURN (SELECT p.up_to FROM causeway.positions p WHERE p.name = position_name ORDER BY p.id DESC LIMIT 1);
END
`

/** Takes the lock of the log. Returns the wait for it in microseconds. */
export const lockLog = plpgsql("lock_log() RETURNS bigint")`
DECLARE
  asked timestamptz := clock_timestamp();
BEGIN
  PERFORM FROM causeway.log FOR UPDATE;
  RETURN (extract(epoch FROM clock_timestamp() - asked) * 1000000)::bigint;
END
`

/**
 * Removes the oldest records, but never the newest, with the tombstones that they made. A tombstone has the number of
 * its record, so that none is left up to the last record that was removed. Returns how many of up to `portion` records
 * were removed.
 */
export const trim = plpgsql("trim(before bigint, portion integer) RETURNS bigint", without("seqscan"))`
DECLARE
  first bigint; up_to bigint;
BEGIN
  SELECT l.trimmed_seq INTO first FROM causeway.log l FOR UPDATE;
  SELECT max(c.seq) INTO up_to
  FROM (SELECT o.seq, o.timestamp FROM causeway.changes o WHERE o.seq > first ORDER BY o.seq LIMIT portion) c
  WHERE c.timestamp < before;
  IF up_to IS NULL THEN RETURN 0; END IF;
  SELECT least(up_to, max(c.seq) - 1) INTO up_to FROM causeway.changes c;
  IF up_to <= first THEN RETURN 0; END IF;
  -- Rows that were removed while a snapshot is held are not visited again.
  DELETE FROM causeway.tombstones t WHERE t.seq > first AND t.seq <= up_to;
  DELETE FROM causeway.changes c WHERE c.seq > first AND c.seq <= up_to;
  UPDATE causeway.log SET trimmed_seq = up_to, history = history + 1;
  RETURN up_to - first;
END
`

/**
 * Returns the epoch of the log: the stored text and the timeline of the server, which changes with each fail-over and
 * each point-in-time recovery. If the role may not read the timeline, it returns the stored text alone.
 */
export const epoch = plpgsql("epoch() RETURNS text", "STABLE")`
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
`

/** Stores a new epoch. For operators who replace the content of the database by a dump of the same cluster. */
export const renewEpoch = `
CREATE FUNCTION causeway.renew_epoch() RETURNS text
LANGUAGE sql
AS $function$
  UPDATE causeway.log SET epoch = ${newEpoch}, history = history + 1;
  SELECT causeway.epoch();
$function$`

/**
 * Stores a new epoch if the database is in another cluster than before, as after a restore of a dump, or on another
 * timeline: two standbys without a common archive are promoted to timelines of the same number. Returns whether the
 * role may read cluster and timeline.
 */
export const identify = plpgsql("identify() RETURNS boolean")`
DECLARE
  identifier text; current_timeline text;
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
`

/**
 * Removes commit records that no node asks for any longer. Fences, which have no result, stay for an hour: until then,
 * the last packet that could deliver the group has been dropped by every network. Other records stay for a minute.
 *
 * Scans start at the position, so that records that were removed while a snapshot is held are not visited again. If the
 * clock of the database was set back, the scan starts at the oldest record. One node at a time does this, by the
 * advisory lock `CWKP`. Returns how many of up to `portion` records with a result were removed.
 */
export const pruneCommits = plpgsql("prune_commits(portion integer) RETURNS integer", without("seqscan"))`
DECLARE
  newest timestamptz := clock_timestamp(); newest_fence timestamptz := newest - interval '1 hour'; current record;
  first timestamptz; last timestamptz; amount integer;
BEGIN
  IF NOT pg_try_advisory_xact_lock(1129794384) THEN RETURN 0; END IF;
  DELETE FROM causeway.commits c WHERE c.result IS NULL AND c.at < newest_fence;
  newest := newest - interval '1 minute';
  ${readPosition("commits", "current")}
  first := 'epoch'::timestamptz + current.up_to * interval '1 microsecond';
  IF first > newest THEN first := 'epoch'; END IF;
  SELECT count(*), max(o.at) INTO amount, last FROM (
    SELECT c.at FROM causeway.commits c
    WHERE c.result IS NOT NULL AND c.at > first AND c.at < newest ORDER BY c.at LIMIT portion
  ) o;
  IF amount = 0 THEN RETURN 0; END IF;
  DELETE FROM causeway.commits c WHERE c.result IS NOT NULL AND c.at > first AND c.at <= last;
  INSERT INTO causeway.positions (name, id, up_to)
  VALUES ('commits', current.id + 1, (extract(epoch FROM last) * 1000000)::bigint);
  DELETE FROM causeway.positions p WHERE p.name = 'commits' AND p.id = current.id;
  RETURN amount;
END
`
