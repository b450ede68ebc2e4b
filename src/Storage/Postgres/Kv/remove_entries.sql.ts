/**
 * Deletes the first entries of a prefix. It searches for them under the lock that every writer takes, so that none is
 * added while it runs. `commit_group` does the rest.
 *
 * Returns `<more>,` and the result of `commit_group` for a write with one delete for each entry; `<more>` is 1 if
 * entries are left, otherwise 0. If there is nothing to delete, it returns `0,` and the last `seq`. The commit record
 * has the same text.
 */
export const removeEntries = `
CREATE FUNCTION causeway.remove_entries(
  group_id uuid,
  now bigint,
  removed_namespace text,
  low text,
  high text,
  portion integer,
  actor text
) RETURNS text
LANGUAGE plpgsql
AS $function$
DECLARE
  found_keys text[];
  amount integer;
  answer text;
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
$function$`
