import { commitKeyed } from "../Kv/idempotency.sql.ts"

/**
 * The first version of the function is for nodes of earlier versions.
 */
export const statements: ReadonlyArray<string> = [
  `CREATE OR REPLACE FUNCTION causeway.commit_keyed(
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
    lock_asked timestamptz;
    lock_wait bigint := 0;
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
    PERFORM causeway.remember_writes(now, limit_bytes, kept_ids, kept_digests, outcomes);
    PERFORM causeway.mark_group(group_id, answer);
    RETURN answer;
  END
  $function$`,
  commitKeyed
]
