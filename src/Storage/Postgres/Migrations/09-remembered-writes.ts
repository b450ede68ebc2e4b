import { markGroup, recallWrites } from "../Kv/idempotency.sql.ts"

export const statements: ReadonlyArray<string> = [
  // Rows are ordered by the bytes of all rows up to each, so that the bytes of all follow from the first and the last.
  `CREATE TABLE causeway.remembered_writes (
    up_to bigint PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    digest text NOT NULL,
    kept_at bigint NOT NULL,
    outcome text NOT NULL
  )`,
  recallWrites,
  `CREATE FUNCTION causeway.remember_writes(
    now bigint, limit_bytes bigint, key_ids text[], key_digests text[], outcomes text[]
  ) RETURNS void
  LANGUAGE plpgsql
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
SET plan_cache_mode = force_generic_plan
  AS $function$
  DECLARE
    last_end bigint;
    new_end bigint;
    amount integer := cardinality(key_ids);
    added integer;
    oldest record;
    due bigint;
  BEGIN
    IF amount = 0 THEN RETURN; END IF;
    SELECT r.up_to INTO last_end FROM causeway.remembered_writes r ORDER BY r.up_to DESC LIMIT 1;
    last_end := coalesce(last_end, 0);
    DELETE FROM causeway.remembered_writes r USING unnest(key_ids) k(id)
    WHERE r.id = k.id AND r.kept_at <= now - 86400000;
    INSERT INTO causeway.remembered_writes (up_to, id, digest, kept_at, outcome)
    SELECT last_end + sum(256 + length(k.outcome)) OVER (ORDER BY k.position), k.id, k.digest, now, k.outcome
    FROM unnest(key_ids, key_digests, outcomes) WITH ORDINALITY k(id, digest, outcome, position)
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS added = ROW_COUNT;
    IF added <> amount THEN RAISE EXCEPTION 'a key is taken' USING ERRCODE = '40001'; END IF;
    SELECT r.up_to INTO new_end FROM causeway.remembered_writes r ORDER BY r.up_to DESC LIMIT 1;
    SELECT r.up_to, r.up_to - 256 - length(r.outcome) AS start, r.kept_at INTO oldest
    FROM causeway.remembered_writes r ORDER BY r.up_to LIMIT 1;
    IF oldest.start >= new_end - limit_bytes AND oldest.kept_at > now - 86400000 THEN RETURN; END IF;
    SELECT max(r.up_to) INTO due
    FROM (
      SELECT o.up_to, o.up_to - 256 - length(o.outcome) AS start, o.kept_at FROM causeway.remembered_writes o
      ORDER BY o.up_to LIMIT 2 * ((new_end - last_end) / 256 + 1)
    ) r
    WHERE r.up_to < new_end AND (r.start < new_end - limit_bytes OR r.kept_at <= now - 86400000);
    DELETE FROM causeway.remembered_writes r WHERE r.up_to <= due;
  END
  $function$`,
  markGroup,
  `CREATE FUNCTION causeway.commit_keyed(
    group_id uuid, now bigint, lock_first boolean, namespaces text[], keys text[], write_sizes integer[], actors text[],
    op_keys integer[], op_values text[], op_expiries bigint[], op_matches text[], op_none_matches text[],
    limit_bytes bigint, key_writes integer[], key_ids text[], key_digests text[], key_expiries text[]
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
  BEGIN
    IF lock_first THEN PERFORM FROM causeway.log FOR UPDATE; END IF;
    answer := causeway.recall_writes(now, key_writes, key_ids, key_digests);
    IF answer IS NOT NULL THEN RETURN answer; END IF;
    answer := causeway.commit_group(
      group_id, now, lock_first, namespaces, keys, write_sizes, actors, op_keys, op_values, op_expiries, op_matches,
      op_none_matches
    );
    PERFORM FROM causeway.log FOR UPDATE;
    numbers := string_to_array(answer, ',')::bigint[];
    FOR w IN 1 .. cardinality(write_sizes) LOOP
      IF key_at <= cardinality(key_writes) AND key_writes[key_at] = w THEN
        IF numbers[at] = 0 THEN
          kept_ids := kept_ids || key_ids[key_at];
          kept_digests := kept_digests || key_digests[key_at];
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
    PERFORM causeway.remember_writes(now, limit_bytes, kept_ids, kept_digests, outcomes);
    PERFORM causeway.mark_group(group_id, answer);
    RETURN answer;
  END
  $function$`,
  `CREATE FUNCTION causeway.remove_keyed(
    group_id uuid, now bigint, removed_namespace text, low text, high text, portion integer, actor text,
    limit_bytes bigint, key_id text, key_digest text
  ) RETURNS text
  LANGUAGE plpgsql
  AS $function$
  DECLARE
    answer text;
    numbers bigint[];
  BEGIN
    PERFORM FROM causeway.log FOR UPDATE;
    answer := causeway.recall_writes(now, ARRAY[1], ARRAY[key_id], ARRAY[key_digest]);
    IF answer IS NOT NULL THEN RETURN answer; END IF;
    answer := causeway.remove_entries(group_id, now, removed_namespace, low, high, portion, actor);
    numbers := string_to_array(answer, ',')::bigint[];
    PERFORM causeway.remember_writes(now, limit_bytes, ARRAY[key_id], ARRAY[key_digest], ARRAY[
      CASE cardinality(numbers)
        WHEN 2 THEN concat_ws(',', now, numbers[2], 0, 0)
        ELSE concat_ws(',', numbers[2], numbers[3] + numbers[5], numbers[5], numbers[1])
      END
    ]);
    PERFORM causeway.mark_group(group_id, answer);
    RETURN answer;
  END
  $function$`
]
