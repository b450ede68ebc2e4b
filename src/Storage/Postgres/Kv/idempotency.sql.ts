/**
 * The functions of writes with idempotency keys. `IdempotencyRecords` describes when they are called, and
 * `Kv/IdempotencyShares` how tenants share the space. Numbers in the texts: a record is kept for 86,400,000 ms
 * (`Kv/Idempotency.lifetime`) and counts for 256 bytes in addition to its outcome (`overheadBytes`); a step is one of
 * 512 parts of the limit (`Kv/IdempotencyShares.steps`). A test compares them with these constants.
 */

/**
 * Returns a JSON array with one element for each key that has a record: the number of its write, whether the digest is
 * the same, and the outcome. Returns NULL if no key has a record.
 */
export const recallWrites = `CREATE FUNCTION causeway.recall_writes(now bigint, key_writes integer[], key_ids text[], key_digests text[])
  RETURNS text
  LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan
  AS $function$
  DECLARE
    found text;
  BEGIN
    SELECT json_agg(json_build_array(k.write, r.digest = k.digest, r.outcome))::text INTO found
    FROM unnest(key_writes, key_ids, key_digests) k(write, id, digest)
    JOIN causeway.remembered_writes r ON r.id = k.id AND r.kept_at > now - 86400000;
    RETURN found;
  END
  $function$`

/**
 * Adds the commit record of a group that has added nothing to the log. It fails if a fence prevents the commit of the
 * group.
 */
export const markGroup = `CREATE FUNCTION causeway.mark_group(group_id uuid, answer text) RETURNS void
  LANGUAGE plpgsql
  AS $function$
  BEGIN
    IF NOT EXISTS (SELECT FROM causeway.commits c WHERE c.id = group_id AND c.result IS NOT NULL) THEN
      INSERT INTO causeway.commits (id, result) VALUES (group_id, answer);
    END IF;
  END
  $function$`

/**
 * Commits a group that has idempotency keys. Returns the result of `recall_writes` if a key has a record, and then
 * nothing is applied. Otherwise it returns the result of `commit_group`, followed by that of `remember_writes`.
 *
 * A write may be refused because another node has applied its first attempt after the keys were looked up. Under the
 * lock, the record of the key is present. The function then fails with 40001, and the node calls it again with
 * `lock_first`.
 */
export const commitKeyed = `CREATE FUNCTION causeway.commit_keyed(
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
    lock_wait bigint := 0;
    kept_tenants text[] := '{}';
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
  $function$`

/**
 * Deletes the first entries of a prefix with an idempotency key. Returns the result of `recall_writes` if the key has a
 * record, otherwise that of `remove_entries`, followed by that of `remember_writes`.
 */
export const removeKeyed = `CREATE FUNCTION causeway.remove_keyed(
    group_id uuid, now bigint, removed_namespace text, low text, high text, portion integer, actor text,
    limit_bytes bigint, key_id text, key_digest text, key_tenant text, compares boolean
  ) RETURNS text
  LANGUAGE plpgsql
  AS $function$
  DECLARE
    answer text;
    found text;
    numbers bigint[];
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
  $function$`

/**
 * Adds records to those of their tenants. Returns the result of `compare_tenants` if a step is reached or `compares` is
 * true, otherwise an empty text. Called under the lock of the log.
 *
 * A new row replaces the total of a tenant: it is found without visiting the earlier ones, which cannot be removed
 * while a snapshot is held. An update would leave versions of one row, all of which the next writer of the tenant
 * visits.
 */
export const rememberWrites = `CREATE FUNCTION causeway.remember_writes(
    now bigint, limit_bytes bigint, compares boolean, key_tenants text[], key_ids text[], key_digests text[],
    outcomes text[]
  ) RETURNS text
  LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan
  AS $function$
  DECLARE
    step bigint := (limit_bytes + 511) / 512;
    last_end bigint;
    new_end bigint;
    amount integer := cardinality(key_ids);
    added integer;
    replaced tid[];
    t record;
  BEGIN
    IF amount = 0 THEN RETURN ''; END IF;
    SELECT r.up_to INTO last_end FROM causeway.remembered_writes r ORDER BY r.up_to DESC LIMIT 1;
    -- No record may be before the position, even if an operator has removed records.
    last_end := greatest(coalesce(last_end, 0), causeway.position('idempotency'));
    -- Records of the same keys that are too old.
    FOR t IN
      WITH gone AS (
        DELETE FROM causeway.remembered_writes r USING unnest(key_ids) k(id)
        WHERE r.id = k.id AND r.kept_at <= now - 86400000
        RETURNING r.tenant, 256 + length(r.outcome) AS bytes
      )
      SELECT g.tenant, sum(g.bytes) AS bytes FROM gone g GROUP BY g.tenant
    LOOP
      PERFORM causeway.lower_total(t.tenant, t.bytes);
    END LOOP;
    INSERT INTO causeway.remembered_writes (up_to, tenant, id, digest, kept_at, outcome)
    SELECT last_end + sum(256 + length(k.outcome)) OVER (ORDER BY k.position), k.tenant, k.id, k.digest, now, k.outcome
    FROM unnest(key_tenants, key_ids, key_digests, outcomes) WITH ORDINALITY k(tenant, id, digest, outcome, position)
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS added = ROW_COUNT;
    IF added <> amount THEN RAISE EXCEPTION 'a key is taken' USING ERRCODE = '40001'; END IF;
    SELECT last_end + sum(256 + length(k.outcome)) INTO new_end FROM unnest(outcomes) k(outcome);
    WITH added_bytes AS MATERIALIZED (
      SELECT k.tenant, sum(256 + length(k.outcome)) AS bytes FROM unnest(key_tenants, outcomes) k(tenant, outcome)
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
  $function$`
