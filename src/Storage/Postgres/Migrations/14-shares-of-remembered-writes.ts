import { removeKeyed } from "../Kv/idempotency.sql.ts"

export const statements: ReadonlyArray<string> = [
  `ALTER TABLE causeway.remembered_writes ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT ''`,
  "CREATE INDEX remembered_writes_by_tenant ON causeway.remembered_writes (tenant, up_to)",
  // The bytes of each tenant, and the position of its last write.
  `CREATE TABLE causeway.remembered_tenants (
    tenant text COLLATE "C" PRIMARY KEY,
    bytes bigint NOT NULL,
    up_to bigint NOT NULL
  ) WITH (fillfactor = 50)`,
  `INSERT INTO causeway.remembered_tenants (tenant, bytes, up_to)
  SELECT '', sum(256 + length(outcome)), max(up_to) FROM causeway.remembered_writes HAVING count(*) > 0`,
  `CREATE FUNCTION causeway.compare_tenants(now bigint, limit_bytes bigint, added bigint, newest bigint) RETURNS text
  LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
SET plan_cache_mode = force_generic_plan
  AS $function$
  DECLARE
    step bigint := (limit_bytes + 511) / 512;
    most_forgotten bigint := 4 * step + 2 * added;
    portion bigint := most_forgotten / 256 + 1;
    oldest_at bigint;
    total bigint;
    target bigint;
    above bigint := 0;
    tenants integer := 0;
    share bigint := 0;
    amount integer := 0;
    forgotten integer := 0;
    freed bigint;
    t record;
  BEGIN
    -- Where the clock was set back, later rows may be too old before the first one.
    SELECT r.kept_at INTO oldest_at FROM causeway.remembered_writes r ORDER BY r.up_to LIMIT 1;
    IF oldest_at <= now - 86400000 OR oldest_at > now THEN
      WITH gone AS (
        DELETE FROM causeway.remembered_writes r
        USING (
          SELECT o.up_to FROM causeway.remembered_writes o WHERE o.up_to < newest ORDER BY o.up_to LIMIT portion
        ) d
        WHERE r.up_to = d.up_to AND r.kept_at <= now - 86400000
        RETURNING r.tenant, 256 + length(r.outcome) AS bytes
      )
      UPDATE causeway.remembered_tenants u SET bytes = u.bytes - g.bytes
      FROM (SELECT gone.tenant, sum(gone.bytes) AS bytes FROM gone GROUP BY gone.tenant) g
      WHERE u.tenant = g.tenant;
    END IF;
    SELECT coalesce(sum(u.bytes), 0) INTO total FROM causeway.remembered_tenants u;
    target := greatest(limit_bytes - step, total - most_forgotten);
    IF total > target THEN
      FOR t IN SELECT u.bytes FROM causeway.remembered_tenants u ORDER BY u.bytes DESC LOOP
        EXIT WHEN tenants > 0 AND t.bytes <= share;
        above := above + t.bytes;
        tenants := tenants + 1;
        share := (target - (total - above)) / tenants;
      END LOOP;
      share := greatest(share, 0);
      -- Those first whose last write is the oldest.
      FOR t IN
        SELECT u.tenant, u.bytes - share AS excess FROM causeway.remembered_tenants u
        WHERE u.bytes > share ORDER BY u.up_to LIMIT portion
      LOOP
        EXIT WHEN total <= target;
        WITH gone AS (
          DELETE FROM causeway.remembered_writes r
          USING (
            SELECT o.up_to, sum(o.bytes) OVER (ORDER BY o.up_to) - o.bytes AS before
            FROM (
              SELECT w.up_to, 256 + length(w.outcome) AS bytes FROM causeway.remembered_writes w
              WHERE w.tenant = t.tenant AND w.up_to < newest
              ORDER BY w.up_to LIMIT t.excess / 256 + 1
            ) o
          ) d
          WHERE r.up_to = d.up_to AND d.before < t.excess
          RETURNING r.kept_at, 256 + length(r.outcome) AS bytes
        )
        SELECT coalesce(sum(gone.bytes), 0), count(*) FILTER (WHERE gone.kept_at > now - 86400000) INTO freed, amount FROM gone;
        UPDATE causeway.remembered_tenants u SET bytes = u.bytes - freed WHERE u.tenant = t.tenant;
        total := total - freed;
        forgotten := forgotten + amount;
      END LOOP;
    END IF;
    DELETE FROM causeway.remembered_tenants u WHERE u.bytes <= 0;
    RETURN ';' || total || ',' || forgotten;
  END
  $function$`,
  `CREATE FUNCTION causeway.remember_writes(
    now bigint, limit_bytes bigint, compares boolean, key_tenants text[], key_ids text[], key_digests text[],
    outcomes text[]
  ) RETURNS text
  LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
SET plan_cache_mode = force_generic_plan
  AS $function$
  DECLARE
    step bigint := (limit_bytes + 511) / 512;
    last_end bigint;
    new_end bigint;
    amount integer := cardinality(key_ids);
    added integer;
  BEGIN
    IF amount = 0 THEN RETURN ''; END IF;
    SELECT r.up_to INTO last_end FROM causeway.remembered_writes r ORDER BY r.up_to DESC LIMIT 1;
    last_end := coalesce(last_end, 0);
    -- Rows of the same keys that are too old.
    WITH gone AS (
      DELETE FROM causeway.remembered_writes r USING unnest(key_ids) k(id)
      WHERE r.id = k.id AND r.kept_at <= now - 86400000
      RETURNING r.tenant, 256 + length(r.outcome) AS bytes
    )
    UPDATE causeway.remembered_tenants u SET bytes = u.bytes - g.bytes
    FROM (SELECT gone.tenant, sum(gone.bytes) AS bytes FROM gone GROUP BY gone.tenant) g
    WHERE u.tenant = g.tenant;
    INSERT INTO causeway.remembered_writes (up_to, tenant, id, digest, kept_at, outcome)
    SELECT last_end + sum(256 + length(k.outcome)) OVER (ORDER BY k.position), k.tenant, k.id, k.digest, now, k.outcome
    FROM unnest(key_tenants, key_ids, key_digests, outcomes) WITH ORDINALITY k(tenant, id, digest, outcome, position)
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS added = ROW_COUNT;
    IF added <> amount THEN RAISE EXCEPTION 'a key is taken' USING ERRCODE = '40001'; END IF;
    SELECT last_end + sum(256 + length(k.outcome)) INTO new_end FROM unnest(outcomes) k(outcome);
    INSERT INTO causeway.remembered_tenants AS u (tenant, bytes, up_to)
    SELECT k.tenant, sum(256 + length(k.outcome)), new_end FROM unnest(key_tenants, outcomes) k(tenant, outcome)
    GROUP BY k.tenant
    ON CONFLICT (tenant) DO UPDATE SET bytes = u.bytes + excluded.bytes, up_to = excluded.up_to;
    IF NOT compares AND last_end / step = new_end / step THEN RETURN ''; END IF;
    RETURN causeway.compare_tenants(now, limit_bytes, new_end - last_end, new_end);
  END
  $function$`,
  `CREATE OR REPLACE FUNCTION causeway.remember_writes(
    now bigint, limit_bytes bigint, key_ids text[], key_digests text[], outcomes text[]
  ) RETURNS void
  LANGUAGE plpgsql
  AS $function$
  BEGIN
    PERFORM causeway.remember_writes(
      now, limit_bytes, false, array_fill(''::text, ARRAY[cardinality(key_ids)]), key_ids, key_digests, outcomes
    );
  END
  $function$`,
  `CREATE FUNCTION causeway.commit_keyed(
    group_id uuid, now bigint, lock_first boolean, namespaces text[], keys text[], write_sizes integer[], actors text[],
    op_keys integer[], op_values text[], op_expiries bigint[], op_matches text[], op_none_matches text[],
    limit_bytes bigint, key_writes integer[], key_ids text[], key_digests text[], key_expiries text[], key_tenants text[], compares boolean
  ) RETURNS text
  LANGUAGE plpgsql
  AS $function$
  DECLARE
    answer text;
    numbers bigint[];
    at integer := 3;
    key_at integer := 1;
    kept_ids text[] := '{}';
    kept_digests text[] := '{}';
    outcomes text[] := '{}';
    lock_asked timestamptz;
    lock_wait bigint := 0;
    kept_tenants text[] := '{}';
    found text;
  BEGIN
    IF lock_first THEN 
    lock_asked := clock_timestamp();
    PERFORM FROM causeway.log FOR UPDATE;
    lock_wait := lock_wait + (extract(epoch FROM clock_timestamp() - lock_asked) * 1000000)::bigint; END IF;
    answer := causeway.recall_writes(now, key_writes, key_ids, key_digests);
    IF answer IS NOT NULL THEN RETURN answer; END IF;
    answer := causeway.commit_group(
      group_id, now, lock_first, namespaces, keys, write_sizes, actors, op_keys, op_values, op_expiries, op_matches,
      op_none_matches
    );
    
    lock_asked := clock_timestamp();
    PERFORM FROM causeway.log FOR UPDATE;
    lock_wait := lock_wait + (extract(epoch FROM clock_timestamp() - lock_asked) * 1000000)::bigint;
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
    found := causeway.remember_writes(now, limit_bytes, compares, kept_tenants, kept_ids, kept_digests, outcomes);
    PERFORM causeway.mark_group(group_id, answer);
    RETURN answer || found;
  END
  $function$`,
  removeKeyed
]
