/**
 * The function that commits a group of writes in one call. It decides what each write does, as `Kv/Write.plan`
 * describes, and is tested against the same model.
 *
 * It decides everything from one snapshot, before it locks the row of `causeway.log`. Every writer of entries,
 * tombstones and records locks that row and keeps the lock until its commit is visible. No writer locks anything else
 * before it. So commits become visible in the order of `seq`, and writers cannot deadlock. Under the lock, the function
 * compares each key with what it has read. If a key has changed, it fails with 40001. The node then calls it again with
 * `lock_first`, which cannot fail this way.
 *
 * Names are given once each; operations refer to them by number, from 1. The value of a delete is null. A condition is
 * null, `*` for any version, or an array of versions.
 *
 * Returns numbers separated by commas. The first two are the timestamp and the last `seq` before the group. Then follow
 * for each write that was applied: 0, the number of records of the group up to its end, and for each operation the
 * version of a set, 0 for a delete, or -1 for a delete of an absent key. For each write that was refused: 1, the index
 * of the refused operation, the current version or -1, and whether an earlier operation of the write has changed the
 * key (0 or 1). The last number is the wait for the lock in microseconds, or -1 if the lock was not taken.
 *
 * Rows are looked up one by one (`OFFSET 0` keeps the planner from choosing a join), and changed by their addresses. If
 * most rows of a table are dead, the planner expects it to be empty, and would choose a scan of all dead rows instead.
 */
import { byIndex, generic, plpgsql } from "./SqlParts.ts"

/** Fails if the statement before has changed another number of rows. */
const unlessFound = (rows: string): string => `GET DIAGNOSTICS found_rows = ROW_COUNT;
    IF found_rows <> ${rows} THEN RAISE EXCEPTION 'a key has changed' USING ERRCODE = '40001'; END IF;`

export const commitGroup = plpgsql(
  `commit_group(group_id uuid, now bigint, lock_first boolean, namespaces text[], keys text[],
    write_sizes integer[], actors text[], op_keys integer[], op_values text[], op_expiries bigint[],
    op_matches text[], op_none_matches text[]) RETURNS text`,
  byIndex,
  generic
)`
DECLARE
  key_count integer := cardinality(keys);
  -- Of each key: what it is after the writes so far, and what it was.
  versions bigint[]; presents boolean[]; expiries bigint[];
  -- Of each key: the address of its row, in entries or in tombstones.
  places tid[]; old_versions bigint[]; old_presents boolean[];
  -- Of each key: the write that changed it last, and the last step on it.
  changed_by integer[] := array_fill(0, ARRAY[key_count]);
  final_steps integer[] := array_fill(0, ARRAY[key_count]);
  -- What the write at hand has changed, as it was before it.
  saved integer; saved_keys integer[] := '{}'; saved_versions bigint[] := '{}'; saved_presents boolean[] := '{}';
  saved_expiries bigint[] := '{}';
  -- The steps of the write at hand. Those of expiry come first in the log.
  own integer; own_keys integer[] := '{}'; own_ops integer[] := '{}'; own_versions bigint[] := '{}';
  expired integer; expired_keys integer[] := '{}'; expired_versions bigint[] := '{}';
  -- The steps of the group. The operation of a delete is 0, and so is the write of a delete by expiry.
  steps integer := 0; step_keys integer[] := '{}'; step_ops integer[] := '{}'; step_versions bigint[] := '{}';
  step_writes integer[] := '{}'; results bigint[] := '{0,0}'; result_count integer := 2; result_start integer;
  first_op integer := 1; k integer; at integer; current_version bigint; is_own boolean; is_live boolean;
  is_refused boolean; versions_text text;
  -- 0: unchanged, 1: entry changed, 2: entry deleted, 3: tombstone to entry, 4: tombstone changed, 5: new entry, 6: new tombstone
  kinds integer[]; counts integer[] := '{0,0,0,0,0,0}'; kind integer; unwritten integer := 0; found_rows integer;
  last_seq bigint := 0; stamp bigint; lock_wait bigint := -1;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'causeway.commit_group needs the isolation level read committed' USING ERRCODE = '0A000';
  END IF;
  IF lock_first THEN lock_wait := causeway.lock_log(); END IF;

  SELECT array_agg(coalesce(e.version, t.version) ORDER BY n.position),
    array_agg(e.version IS NOT NULL ORDER BY n.position),
    array_agg(e.expires_at ORDER BY n.position),
    array_agg(coalesce(e.place, t.place) ORDER BY n.position)
  INTO versions, presents, expiries, places
  FROM unnest(namespaces, keys) WITH ORDINALITY n(namespace, key, position)
  LEFT JOIN LATERAL (
    SELECT f.version, f.expires_at, f.ctid AS place FROM causeway.entries f
    WHERE f.namespace = n.namespace AND f.key = n.key OFFSET 0
  ) e ON true
  LEFT JOIN LATERAL (
    SELECT f.version, f.ctid AS place FROM causeway.tombstones f
    WHERE e.version IS NULL AND f.namespace = n.namespace AND f.key = n.key OFFSET 0
  ) t ON true;
  old_versions := versions;
  old_presents := presents;

  FOR w IN 1 .. cardinality(write_sizes) LOOP
    own := 0;
    expired := 0;
    saved := 0;
    is_refused := false;
    result_start := result_count;
    -- Filled in when the write is decided.
    results[result_count + 1] := 0;
    results[result_count + 2] := 0;
    result_count := result_count + 2;
    FOR op IN first_op .. first_op + write_sizes[w] - 1 LOOP
      k := op_keys[op];
      current_version := versions[k];
      is_own := changed_by[k] = w;
      is_live := presents[k] AND (expiries[k] IS NULL OR expiries[k] > now);
      IF op_matches IS NOT NULL THEN
        versions_text := op_matches[op];
        IF versions_text IS NOT NULL THEN
          IF NOT is_live THEN
            is_refused := true;
          ELSIF versions_text <> '*' THEN
            is_refused := NOT current_version = ANY (versions_text::bigint[]);
          END IF;
        END IF;
        versions_text := op_none_matches[op];
        IF versions_text IS NOT NULL AND is_live AND NOT is_refused THEN
          IF versions_text = '*' THEN
            is_refused := true;
          ELSE
            is_refused := current_version = ANY (versions_text::bigint[]);
          END IF;
        END IF;
        IF is_refused THEN
          FOR j IN 1 .. saved LOOP
            at := saved_keys[j];
            versions[at] := saved_versions[j];
            presents[at] := saved_presents[j];
            expiries[at] := saved_expiries[j];
            changed_by[at] := 0;
          END LOOP;
          is_live := presents[k] AND (expiries[k] IS NULL OR expiries[k] > now);
          results[result_start + 1] := 1;
          results[result_start + 2] := op - first_op;
          results[result_start + 3] := CASE WHEN is_live THEN versions[k] ELSE -1 END;
          results[result_start + 4] := is_own::integer;
          result_count := result_start + 4;
          EXIT;
        END IF;
      END IF;
      result_count := result_count + 1;
      IF op_values[op] IS NULL AND NOT is_live THEN
        results[result_count] := -1;
        CONTINUE;
      END IF;
      IF NOT is_own THEN
        saved := saved + 1;
        saved_keys[saved] := k;
        saved_versions[saved] := versions[k];
        saved_presents[saved] := presents[k];
        saved_expiries[saved] := expiries[k];
        changed_by[k] := w;
      END IF;
      own := own + 1;
      own_keys[own] := k;
      IF op_values[op] IS NULL THEN
        current_version := current_version + 1;
        presents[k] := false;
        expiries[k] := NULL;
        own_ops[own] := 0;
        results[result_count] := 0;
      ELSE
        current_version := coalesce(current_version, 0);
        IF presents[k] AND NOT is_live AND NOT is_own THEN
          current_version := current_version + 1;
          expired := expired + 1;
          expired_keys[expired] := k;
          expired_versions[expired] := current_version;
        END IF;
        current_version := current_version + 1;
        presents[k] := true;
        expiries[k] := op_expiries[op];
        own_ops[own] := op;
        results[result_count] := current_version;
      END IF;
      versions[k] := current_version;
      own_versions[own] := current_version;
    END LOOP;
    first_op := first_op + write_sizes[w];
    IF NOT is_refused THEN
      FOR j IN 1 .. expired LOOP
        steps := steps + 1;
        step_keys[steps] := expired_keys[j];
        step_ops[steps] := 0;
        step_versions[steps] := expired_versions[j];
        step_writes[steps] := 0;
      END LOOP;
      FOR j IN 1 .. own LOOP
        steps := steps + 1;
        step_keys[steps] := own_keys[j];
        step_ops[steps] := own_ops[j];
        step_versions[steps] := own_versions[j];
        step_writes[steps] := w;
        final_steps[own_keys[j]] := steps;
      END LOOP;
      results[result_start + 2] := steps;
    END IF;
  END LOOP;

  IF steps > 0 AND NOT lock_first THEN lock_wait := causeway.lock_log(); END IF;
  SELECT c.seq, c.timestamp INTO last_seq, stamp FROM causeway.changes c ORDER BY c.seq DESC LIMIT 1;
  last_seq := coalesce(last_seq, 0);
  stamp := greatest(now, stamp);
  results[1] := stamp;
  results[2] := last_seq;
  results[result_count + 1] := lock_wait;
  IF steps = 0 THEN RETURN array_to_string(results, ','); END IF;

  kinds := array_fill(0, ARRAY[key_count]);
  FOR i IN 1 .. key_count LOOP
    IF final_steps[i] = 0 THEN
      unwritten := unwritten + 1;
    ELSE
      kind := CASE WHEN old_presents[i] THEN 1 WHEN old_versions[i] IS NOT NULL THEN 3 ELSE 5 END
        + CASE WHEN presents[i] THEN 0 ELSE 1 END;
      kinds[i] := kind;
      counts[kind] := counts[kind] + 1;
    END IF;
  END LOOP;

  -- Keys that are only read, and keys that are new, have no row by which a change would be noticed below.
  IF NOT lock_first AND unwritten + counts[5] + counts[6] > 0 THEN
    PERFORM FROM unnest(namespaces, keys, kinds, old_versions, old_presents) n(namespace, key, kind, version, present)
    LEFT JOIN LATERAL (
      SELECT f.version FROM causeway.entries f WHERE f.namespace = n.namespace AND f.key = n.key OFFSET 0
    ) e ON true
    LEFT JOIN LATERAL (
      SELECT f.version FROM causeway.tombstones f
      WHERE e.version IS NULL AND f.namespace = n.namespace AND f.key = n.key OFFSET 0
    ) t ON true
    WHERE n.kind IN (0, 5, 6)
      AND (coalesce(e.version, t.version) IS DISTINCT FROM n.version OR (e.version IS NOT NULL) <> n.present)
    LIMIT 1;
    IF FOUND THEN RAISE EXCEPTION 'a key has changed' USING ERRCODE = '40001'; END IF;
  END IF;
  IF counts[1] > 0 THEN
    UPDATE causeway.entries e
    SET value = op_values[step_ops[n.step]], version = step_versions[n.step], updated_by = actors[step_writes[n.step]],
      updated_at = stamp, expires_at = op_expiries[step_ops[n.step]]
    FROM unnest(places, namespaces, keys, kinds, old_versions, final_steps) n(place, namespace, key, kind, version, step)
    WHERE n.kind = 1 AND e.ctid = n.place AND e.namespace = n.namespace AND e.key = n.key AND e.version = n.version;
    ${unlessFound("counts[1]")}
  END IF;
  IF counts[2] > 0 THEN
    DELETE FROM causeway.entries e
    USING unnest(places, namespaces, keys, kinds, old_versions) n(place, namespace, key, kind, version)
    WHERE n.kind = 2 AND e.ctid = n.place AND e.namespace = n.namespace AND e.key = n.key AND e.version = n.version;
    ${unlessFound("counts[2]")}
  END IF;
  IF counts[3] + counts[4] > 0 THEN
    DELETE FROM causeway.tombstones t
    USING unnest(places, namespaces, keys, kinds, old_versions) n(place, namespace, key, kind, version)
    WHERE n.kind IN (3, 4) AND t.ctid = n.place AND t.namespace = n.namespace AND t.key = n.key AND t.version = n.version;
    ${unlessFound("counts[3] + counts[4]")}
  END IF;
  IF counts[3] + counts[5] > 0 THEN
    INSERT INTO causeway.entries (namespace, key, version, updated_by, updated_at, expires_at, value)
    SELECT n.namespace, n.key, step_versions[n.step], actors[step_writes[n.step]], stamp, op_expiries[step_ops[n.step]],
      op_values[step_ops[n.step]]
    FROM unnest(namespaces, keys, kinds, final_steps) n(namespace, key, kind, step)
    WHERE n.kind IN (3, 5);
  END IF;
  IF counts[2] + counts[4] + counts[6] > 0 THEN
    INSERT INTO causeway.tombstones (namespace, key, version, seq)
    SELECT n.namespace, n.key, step_versions[n.step], last_seq + n.step
    FROM unnest(namespaces, keys, kinds, final_steps) n(namespace, key, kind, step)
    WHERE n.kind IN (2, 4, 6);
  END IF;
  INSERT INTO causeway.changes (seq, op, namespace, key, version, actor, timestamp, value)
  SELECT last_seq + s.position, CASE s.op WHEN 0 THEN 'delete' ELSE 'set' END, namespaces[s.key], keys[s.key], s.version,
    CASE s.write WHEN 0 THEN 'expiry' ELSE actors[s.write] END, stamp, CASE s.op WHEN 0 THEN NULL ELSE op_values[s.op] END
  FROM unnest(step_keys, step_ops, step_versions, step_writes) WITH ORDINALITY s(key, op, version, write, position);
  INSERT INTO causeway.commits (id, result) VALUES (group_id, array_to_string(results, ','));
  RETURN array_to_string(results, ',');
END
`
