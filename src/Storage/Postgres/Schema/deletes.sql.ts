/**
 * The functions that delete entries which the caller does not name: those of a prefix, and those that have expired.
 *
 * The position `expiry` moves under the lock of the log, and never past the time of the newest record. No later write is
 * recorded with an earlier time. So an entry can be before the position only if it has expired when it is written, and
 * a trigger moves the position back for it.
 */
import { byAddress, byIndex, plpgsql, readPosition } from "./SqlParts.ts"

/**
 * Deletes the first entries of a prefix. It searches for them under the lock that every writer takes, so that none is
 * added while it runs. `commit_group` does the rest.
 *
 * Returns `<more>,` and the result of `commit_group` for a write with one delete for each entry; `<more>` is 1 if
 * entries are left, otherwise 0. If there is nothing to delete, it returns `0,` and the last `seq`. The commit record
 * has the same text.
 */
export const removeEntries = plpgsql(
  `remove_entries(group_id uuid, now bigint, removed_namespace text, low text, high text, portion integer,
    actor text) RETURNS text`
)`
DECLARE
  found_keys text[]; amount integer; answer text;
BEGIN
  PERFORM FROM causeway.log FOR UPDATE;
  SELECT array_agg(f.key ORDER BY f.key) INTO found_keys FROM (
    SELECT e.key FROM causeway.entries e
    WHERE e.namespace = removed_namespace AND e.key >= low AND (high IS NULL OR e.key < high)
      AND (e.expires_at IS NULL OR e.expires_at > now)
    ORDER BY e.key LIMIT portion + 1
  ) f;
  amount := least(coalesce(cardinality(found_keys), 0), portion);
  IF amount = 0 THEN
    RETURN '0,' || coalesce((SELECT max(c.seq) FROM causeway.changes c), 0);
  END IF;
  answer := (cardinality(found_keys) > portion)::integer || ',' || causeway.commit_group(
    group_id, now, true, array_fill(removed_namespace, ARRAY[amount]), found_keys[1:amount], ARRAY[amount], ARRAY[actor],
    ARRAY(SELECT generate_series(1, amount)), array_fill(NULL::text, ARRAY[amount]),
    array_fill(NULL::bigint, ARRAY[amount]), NULL, NULL
  );
  UPDATE causeway.commits c SET result = answer WHERE c.id = group_id;
  RETURN answer;
END
`

/**
 * Deletes entries by their row addresses. Other scans are turned off: if all entries have expired, the planner expects
 * an empty table and would choose a scan of all dead rows for each entry to delete.
 */
export const deleteEntries = plpgsql("delete_entries(places tid[]) RETURNS void", byAddress)`
BEGIN
  DELETE FROM causeway.entries e WHERE e.ctid = ANY (places);
END
`

/** Deletes entries that have expired, in the order of their expiry. Returns how many, and the last `seq`. */
export const expire = plpgsql("expire(now bigint, portion integer, OUT expired bigint, OUT last_seq bigint)", byIndex)`
DECLARE
  base bigint; stamp bigint; begun record; places tid[];
BEGIN
  expired := 0;
  PERFORM FROM causeway.entries e WHERE expires_at > (SELECT causeway.position('expiry')) AND expires_at <= now ORDER BY e.expires_at LIMIT 1;
  IF NOT FOUND THEN RETURN; END IF;
  PERFORM FROM causeway.log FOR UPDATE;
  ${readPosition("expiry", "begun")}
  SELECT c.seq, greatest(now, c.timestamp) INTO base, stamp FROM causeway.changes c ORDER BY c.seq DESC LIMIT 1;
  WITH due AS MATERIALIZED (
    SELECT d.*, row_number() OVER (ORDER BY d.expires_at, d.namespace, d.key) AS position
    FROM (
      SELECT e.namespace, e.key, e.version, e.expires_at, e.ctid AS place FROM causeway.entries e
      WHERE e.expires_at > begun.up_to AND e.expires_at <= now ORDER BY e.expires_at LIMIT portion
    ) d
  ), marked AS (
    INSERT INTO causeway.tombstones (namespace, key, version, seq)
    SELECT d.namespace, d.key, d.version + 1, base + d.position FROM due d
  ), moved AS (
    -- Others may expire at the same time as the last one of a full portion.
    INSERT INTO causeway.positions (name, id, up_to)
    SELECT 'expiry', begun.id + 1, CASE WHEN count(*) < portion THEN now ELSE max(d.expires_at) - 1 END
    FROM due d HAVING count(*) > 0
  ), recorded AS (
    INSERT INTO causeway.changes (seq, op, namespace, key, version, actor, timestamp)
    SELECT base + d.position, 'delete', d.namespace, d.key, d.version + 1, 'expiry', stamp FROM due d
  )
  SELECT count(*), array_agg(d.place) INTO expired, places FROM due d;
  IF expired > 0 THEN
    PERFORM causeway.delete_entries(places);
    DELETE FROM causeway.positions p WHERE p.name = 'expiry' AND p.id <= begun.id;
  END IF;
  last_seq := base + expired;
END
`

/**
 * Moves the position if no entry has expired for a while; `expire` moves it otherwise. It never passes the time of the
 * newest record: a later write may be recorded with any time from that on, and the trigger does not see an entry that
 * expires between the two. The first look is without the lock of the log, and is repeated under it.
 */
export const advanceExpiry = plpgsql("advance_expiry(now bigint) RETURNS void", byIndex)`
DECLARE
  begun record; target bigint;
BEGIN
  ${readPosition("expiry", "begun")}
  SELECT least(now, c.timestamp) INTO target FROM causeway.changes c ORDER BY c.seq DESC LIMIT 1;
  IF target IS NULL OR target <= begun.up_to + 10000 THEN RETURN; END IF;
  PERFORM FROM causeway.entries e WHERE e.expires_at > begun.up_to ORDER BY e.expires_at LIMIT 1;
  IF NOT FOUND THEN RETURN; END IF;
  PERFORM FROM causeway.entries e WHERE e.expires_at > begun.up_to AND e.expires_at <= target
  ORDER BY e.expires_at LIMIT 1;
  IF FOUND THEN RETURN; END IF;
  PERFORM FROM causeway.log FOR UPDATE;
  -- What was written since the time of the first look has the same time or a later one.
  ${readPosition("expiry", "begun")}
  IF target <= begun.up_to THEN RETURN; END IF;
  PERFORM FROM causeway.entries e WHERE e.expires_at > begun.up_to AND e.expires_at <= target
  ORDER BY e.expires_at LIMIT 1;
  IF FOUND THEN RETURN; END IF;
  INSERT INTO causeway.positions (name, id, up_to) VALUES ('expiry', begun.id + 1, target);
  DELETE FROM causeway.positions p WHERE p.name = 'expiry' AND p.id <= begun.id;
END
`

/**
 * The trigger that moves the position back for an entry that has expired when it is written. It has no settings: they
 * would take longer than the rest of the call.
 */
export const lowerExpiry = plpgsql("lower_expiry() RETURNS trigger")`
BEGIN
  IF TG_OP = 'TRUNCATE' THEN
    -- What is put there next was written elsewhere, where other times were recorded.
    INSERT INTO causeway.positions (name, id, up_to) SELECT 'expiry', n.id + 1, 0 FROM (SELECT p.id, p.up_to FROM causeway.positions p WHERE p.name = 'expiry' ORDER BY p.id DESC LIMIT 1) n;
    RETURN NULL;
  END IF;
  -- A client that writes by hand may not have it.
  PERFORM FROM causeway.log FOR UPDATE;
  INSERT INTO causeway.positions (name, id, up_to)
  SELECT 'expiry', n.id + 1, NEW.expires_at - 1 FROM (SELECT p.id, p.up_to FROM causeway.positions p WHERE p.name = 'expiry' ORDER BY p.id DESC LIMIT 1) n WHERE n.up_to >= NEW.expires_at;
  RETURN NULL;
END
`
