/**
 * The functions of writes with idempotency keys, and of the totals of tenants. `Kv/Writer` describes when they are
 * called, and `Kv/IdempotencyShares` how tenants share the space.
 */
import { lifetime, overheadBytes } from "../../../Kv/Idempotency.ts"
import { steps } from "../../../Kv/IdempotencyShares.ts"
import { byAddress, byIndex, generic, plpgsql, readPosition, without } from "./SqlParts.ts"

/**
 * Returns a JSON array with one element for each key that has a record: the number of its write, whether the digest is
 * the same, and the outcome. Returns NULL if no key has a record.
 */
export const recallWrites = plpgsql(
  `recall_writes(now bigint, key_writes integer[], key_ids text[], key_digests text[]) RETURNS text`,
  byIndex,
  generic
)`
DECLARE
  found text;
BEGIN
  SELECT json_agg(json_build_array(k.write, r.digest = k.digest, r.outcome))::text INTO found
  FROM unnest(key_writes, key_ids, key_digests) k(write, id, digest)
  JOIN causeway.remembered_writes r ON r.id = k.id AND r.kept_at > now - ${lifetime};
  RETURN found;
END
`

/**
 * Adds the commit record of a group that has added nothing to the log. It fails if a fence prevents the commit of the
 * group.
 */
export const markGroup = plpgsql("mark_group(group_id uuid, answer text) RETURNS void")`
BEGIN
  IF NOT EXISTS (SELECT FROM causeway.commits c WHERE c.id = group_id AND c.result IS NOT NULL) THEN
    INSERT INTO causeway.commits (id, result) VALUES (group_id, answer);
  END IF;
END
`

/**
 * Commits a group that has idempotency keys. Returns the result of `recall_writes` if a key has a record, and then
 * nothing is applied. Otherwise it returns the result of `commit_group`, followed by that of `remember_writes`.
 *
 * A write may be refused because another node has applied its first attempt after the keys were looked up. Under the
 * lock, the record of the key is present. The function then fails with 40001, and the node calls it again with
 * `lock_first`.
 */
export const commitKeyed = plpgsql(
  `commit_keyed(group_id uuid, now bigint, lock_first boolean, namespaces text[], keys text[],
    write_sizes integer[], actors text[], op_keys integer[], op_values text[], op_expiries bigint[],
    op_matches text[], op_none_matches text[], limit_bytes bigint, key_writes integer[], key_ids text[],
    key_digests text[], key_expiries text[], key_tenants text[], compares boolean) RETURNS text`
)`
DECLARE
  answer text; numbers bigint[]; at integer := 3; key_at integer := 1; kept_ids text[] := '{}';
  kept_digests text[] := '{}'; outcomes text[] := '{}'; lock_wait bigint := 0; kept_tenants text[] := '{}';
  found text;
BEGIN
  IF lock_first THEN lock_wait := causeway.lock_log(); END IF;
  answer := causeway.recall_writes(now, key_writes, key_ids, key_digests);
  IF answer IS NOT NULL THEN RETURN answer; END IF;
  answer := causeway.commit_group(
    group_id, now, lock_first, namespaces, keys, write_sizes, actors, op_keys, op_values, op_expiries, op_matches,
    op_none_matches
  );
  lock_wait := lock_wait + causeway.lock_log();
  numbers := string_to_array(answer, ',')::bigint[];
  numbers[cardinality(numbers)] := greatest(numbers[cardinality(numbers)], 0) + lock_wait;
  answer := array_to_string(numbers, ',');
  FOR w IN 1 .. cardinality(write_sizes) LOOP
    IF key_at <= cardinality(key_writes) AND key_writes[key_at] = w THEN
      IF numbers[at] = 0 THEN
        kept_ids := kept_ids || key_ids[key_at];
        kept_digests := kept_digests || key_digests[key_at];
        kept_tenants := kept_tenants || key_tenants[key_at];
        outcomes := outcomes || (
          concat_ws(
            ',', numbers[1], numbers[2] + numbers[at + 1],
            nullif(array_to_string(numbers[at + 2 : at + 1 + write_sizes[w]], ','), '')
          ) || key_expiries[key_at]
        );
      END IF;
      key_at := key_at + 1;
    END IF;
    at := at + CASE numbers[at] WHEN 0 THEN 2 + write_sizes[w] ELSE 4 END;
  END LOOP;
  IF NOT lock_first AND cardinality(kept_ids) < cardinality(key_ids)
      AND causeway.recall_writes(now, key_writes, key_ids, key_digests) IS NOT NULL THEN
    RAISE EXCEPTION 'a key is taken' USING ERRCODE = '40001';
  END IF;
  found := causeway.remember_writes(now, limit_bytes, compares, kept_tenants, kept_ids, kept_digests, outcomes);
  PERFORM causeway.mark_group(group_id, answer);
  RETURN answer || found;
END
`

/**
 * Deletes the first entries of a prefix with an idempotency key. Returns the result of `recall_writes` if the key has a
 * record, otherwise that of `remove_entries`, followed by that of `remember_writes`.
 */
export const removeKeyed = plpgsql(
  `remove_keyed(group_id uuid, now bigint, removed_namespace text, low text, high text, portion integer,
    actor text, limit_bytes bigint, key_id text, key_digest text, key_tenant text, compares boolean) RETURNS text`
)`
DECLARE
  answer text; found text; numbers bigint[];
BEGIN
  PERFORM FROM causeway.log FOR UPDATE;
  answer := causeway.recall_writes(now, ARRAY[1], ARRAY[key_id], ARRAY[key_digest]);
  IF answer IS NOT NULL THEN RETURN answer; END IF;
  answer := causeway.remove_entries(group_id, now, removed_namespace, low, high, portion, actor);
  numbers := string_to_array(answer, ',')::bigint[];
  found := causeway.remember_writes(
    now, limit_bytes, compares, ARRAY[key_tenant], ARRAY[key_id], ARRAY[key_digest], ARRAY[
      CASE cardinality(numbers)
        WHEN 2 THEN concat_ws(',', now, numbers[2], 0, 0)
        ELSE concat_ws(',', numbers[2], numbers[3] + numbers[5], numbers[5], numbers[1])
      END
    ]
  );
  PERFORM causeway.mark_group(group_id, answer);
  RETURN answer || found;
END
`

/**
 * Adds records to those of their tenants. Returns the result of `compare_tenants` if a step is reached or `compares` is
 * true, otherwise an empty text. Called under the lock of the log.
 *
 * A new row replaces the total of a tenant: it is found without visiting the earlier ones, which cannot be removed
 * while a snapshot is held. An update would leave versions of one row, all of which the next writer of the tenant
 * visits.
 */
export const rememberWrites = plpgsql(
  `remember_writes(now bigint, limit_bytes bigint, compares boolean, key_tenants text[], key_ids text[],
    key_digests text[], outcomes text[]) RETURNS text`,
  byIndex,
  generic
)`
DECLARE
  step bigint := (limit_bytes + ${steps - 1}) / ${steps}; last_end bigint; new_end bigint;
  amount integer := cardinality(key_ids); added integer; replaced tid[]; t record;
BEGIN
  IF amount = 0 THEN RETURN ''; END IF;
  SELECT r.up_to INTO last_end FROM causeway.remembered_writes r ORDER BY r.up_to DESC LIMIT 1;
  -- No record may be before the position, even if an operator has removed records.
  last_end := greatest(coalesce(last_end, 0), causeway.position('idempotency'));
  -- Records of the same keys that are too old.
  FOR t IN
    WITH gone AS (
      DELETE FROM causeway.remembered_writes r USING unnest(key_ids) k(id)
      WHERE r.id = k.id AND r.kept_at <= now - ${lifetime}
      RETURNING r.tenant, ${overheadBytes} + length(r.outcome) AS bytes
    )
    SELECT g.tenant, sum(g.bytes) AS bytes FROM gone g GROUP BY g.tenant
  LOOP
    PERFORM causeway.lower_total(t.tenant, t.bytes);
  END LOOP;
  INSERT INTO causeway.remembered_writes (up_to, tenant, id, digest, kept_at, outcome)
  SELECT last_end + sum(${overheadBytes} + length(k.outcome)) OVER (ORDER BY k.position), k.tenant, k.id, k.digest, now, k.outcome
  FROM unnest(key_tenants, key_ids, key_digests, outcomes) WITH ORDINALITY k(tenant, id, digest, outcome, position)
  ON CONFLICT DO NOTHING;
  GET DIAGNOSTICS added = ROW_COUNT;
  IF added <> amount THEN RAISE EXCEPTION 'a key is taken' USING ERRCODE = '40001'; END IF;
  SELECT last_end + sum(${overheadBytes} + length(k.outcome)) INTO new_end FROM unnest(outcomes) k(outcome);
  WITH added_bytes AS MATERIALIZED (
    SELECT k.tenant, sum(${overheadBytes} + length(k.outcome)) AS bytes FROM unnest(key_tenants, outcomes) k(tenant, outcome)
    GROUP BY k.tenant
  ), totals AS MATERIALIZED (
    SELECT a.tenant, a.bytes + coalesce(u.bytes, 0) AS bytes, greatest(new_end, u.up_to + 1) AS up_to, u.place
    FROM added_bytes a LEFT JOIN LATERAL (
      SELECT n.bytes, n.up_to, n.ctid AS place FROM causeway.remembered_tenants n
      WHERE n.tenant = a.tenant ORDER BY n.up_to DESC LIMIT 1
    ) u ON true
  ), stored AS (
    INSERT INTO causeway.remembered_tenants (tenant, bytes, up_to) SELECT s.tenant, s.bytes, s.up_to FROM totals s
  )
  SELECT array_agg(s.place) FILTER (WHERE s.place IS NOT NULL) INTO replaced FROM totals s;
  IF replaced IS NOT NULL THEN PERFORM causeway.delete_totals(replaced); END IF;
  IF NOT compares AND last_end / step = new_end / step THEN RETURN ''; END IF;
  RETURN causeway.compare_tenants(now, limit_bytes, new_end - last_end, new_end);
END
`

/**
 * Deletes rows of `remembered_tenants` by their addresses. Other scans are turned off: most rows of the table are dead, so
 * that the planner expects few and would choose a scan of all of them.
 */
export const deleteTotals = plpgsql("delete_totals(places tid[]) RETURNS void", byAddress)`
BEGIN
  DELETE FROM causeway.remembered_tenants u WHERE u.ctid = ANY (places);
END
`

/** Subtracts bytes from the total of a tenant, and removes a total that has none left. Called under the lock of the log. */
export const lowerTotal = plpgsql("lower_total(of_tenant text, freed bigint) RETURNS void", without("seqscan"))`
DECLARE
  newest bigint;
BEGIN
  SELECT u.up_to INTO newest FROM causeway.remembered_tenants u WHERE u.tenant = of_tenant ORDER BY u.up_to DESC LIMIT 1;
  DELETE FROM causeway.remembered_tenants u WHERE u.tenant = of_tenant AND u.up_to = newest AND u.bytes <= freed;
  IF NOT FOUND THEN
    UPDATE causeway.remembered_tenants u SET bytes = u.bytes - freed WHERE u.tenant = of_tenant AND u.up_to = newest;
  END IF;
END
`

/**
 * Compares the tenants, after `added` bytes were added, the last of them up to `newest`. Returns `;`, the bytes of all
 * tenants, `,` and how many records were removed before they were too old. Called under the lock of the log.
 *
 * Each tenant has one row with its total. Scans of records start at the position: no live record is before it.
 */
export const compareTenants = plpgsql(
  `compare_tenants(now bigint, limit_bytes bigint, added bigint, newest bigint) RETURNS text`,
  byIndex,
  generic
)`
DECLARE
  step bigint := (limit_bytes + ${steps - 1}) / ${steps}; max_forgotten bigint := 4 * step + 2 * added;
  portion bigint := max_forgotten / ${overheadBytes} + 1; oldest_expiry bigint := now - ${lifetime}; start record;
  oldest record; has_dead_rows boolean; tenant_names text[]; tenant_bytes bigint[]; tenant_ends bigint[];
  total bigint; target bigint; above bigint := 0; tenants integer := 0; share bigint := 0; amount integer := 0;
  forgotten integer := 0; freed bigint; t record;
BEGIN
  ${readPosition("idempotency", "start")}
  SELECT r.up_to - 1 AS before, r.kept_at INTO oldest FROM causeway.remembered_writes r
  WHERE r.up_to > start.up_to ORDER BY r.up_to LIMIT 1;
  IF oldest.before > start.up_to THEN
    INSERT INTO causeway.positions (name, id, up_to) VALUES ('idempotency', start.id + 1, oldest.before);
    DELETE FROM causeway.positions p WHERE p.name = 'idempotency' AND p.id = start.id;
  END IF;
  -- If the clock was set back, records after the first one may be too old before it is.
  IF oldest.kept_at <= oldest_expiry OR oldest.kept_at > now THEN
    FOR t IN
      WITH gone AS (
        DELETE FROM causeway.remembered_writes r
        USING (
          SELECT o.up_to FROM causeway.remembered_writes o
          WHERE o.up_to > oldest.before AND o.up_to < newest ORDER BY o.up_to LIMIT portion
        ) d
        WHERE r.up_to = d.up_to AND r.kept_at <= oldest_expiry
        RETURNING r.tenant, ${overheadBytes} + length(r.outcome) AS bytes
      )
      SELECT g.tenant, sum(g.bytes) AS bytes FROM gone g GROUP BY g.tenant
    LOOP
      PERFORM causeway.lower_total(t.tenant, t.bytes);
    END LOOP;
  END IF;
  -- A lookup for each tenant visits no dead rows, but a scan takes a hundredth of its time if few rows are dead.
  SELECT pg_relation_size(c.oid) / 8192 > 100 + 3 * greatest(c.reltuples, 0) INTO has_dead_rows
  FROM pg_class c WHERE c.oid = 'causeway.remembered_tenants'::regclass;
  IF has_dead_rows THEN
    WITH RECURSIVE totals AS (
      (
        SELECT u.tenant, u.up_to, u.bytes FROM causeway.remembered_tenants u
        ORDER BY u.tenant DESC, u.up_to DESC LIMIT 1
      )
      UNION ALL
      SELECT n.tenant, n.up_to, n.bytes FROM totals s CROSS JOIN LATERAL (
        SELECT u.tenant, u.up_to, u.bytes FROM causeway.remembered_tenants u
        WHERE u.tenant < s.tenant ORDER BY u.tenant DESC, u.up_to DESC LIMIT 1
      ) n
    )
    SELECT coalesce(sum(s.bytes), 0), array_agg(s.tenant), array_agg(s.bytes), array_agg(s.up_to)
    INTO total, tenant_names, tenant_bytes, tenant_ends FROM totals s;
  ELSE
    SELECT coalesce(sum(u.bytes), 0), array_agg(u.tenant), array_agg(u.bytes), array_agg(u.up_to)
    INTO total, tenant_names, tenant_bytes, tenant_ends FROM causeway.remembered_tenants u;
  END IF;
  target := greatest(limit_bytes - step, total - max_forgotten);
  IF total > target THEN
    FOR t IN SELECT u.bytes FROM unnest(tenant_bytes) u(bytes) ORDER BY u.bytes DESC LOOP
      EXIT WHEN tenants > 0 AND t.bytes <= share;
      above := above + t.bytes;
      tenants := tenants + 1;
      share := (target - (total - above)) / tenants;
    END LOOP;
    share := greatest(share, 0);
    -- Those first whose last write is the oldest.
    FOR t IN
      SELECT u.tenant, u.bytes - share AS excess FROM unnest(tenant_names, tenant_bytes, tenant_ends) u(tenant, bytes, up_to)
      WHERE u.bytes > share ORDER BY u.up_to LIMIT portion
    LOOP
      EXIT WHEN total <= target;
      WITH gone AS (
        DELETE FROM causeway.remembered_writes r
        USING (
          SELECT o.up_to, sum(o.bytes) OVER (ORDER BY o.up_to) - o.bytes AS before
          FROM (
            SELECT w.up_to, ${overheadBytes} + length(w.outcome) AS bytes FROM causeway.remembered_writes w
            WHERE w.tenant = t.tenant AND w.up_to > oldest.before AND w.up_to < newest
            ORDER BY w.up_to LIMIT t.excess / ${overheadBytes} + 1
          ) o
        ) d
        WHERE r.up_to = d.up_to AND d.before < t.excess
        RETURNING r.kept_at, ${overheadBytes} + length(r.outcome) AS bytes
      )
      SELECT coalesce(sum(g.bytes), 0), count(*) FILTER (WHERE g.kept_at > oldest_expiry) INTO freed, amount FROM gone g;
      PERFORM causeway.lower_total(t.tenant, freed);
      total := total - freed;
      forgotten := forgotten + amount;
    END LOOP;
  END IF;
  RETURN ';' || total || ',' || forgotten;
END
`
