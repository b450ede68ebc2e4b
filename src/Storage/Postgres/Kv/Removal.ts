/**
 * Deletes the first entries of a prefix, as `Kv/Write.removing` says, in one call.
 */
import type { Applied, Removal } from "../../../Kv/Write.ts"
import * as KeyOrder from "../../KeyOrder.ts"
import { calling, type Parameter } from "../Database/Statement.ts"

/**
 * The entries are looked for under the lock that every writer takes, so that none is added meanwhile; `commit_group` does
 * the rest. Returns whether entries are left, and then what `commit_group` does of a write with one delete for each
 * entry; or only `0` and the last `seq` where there is none to delete. The mark of the call has the same.
 */
export const removeFunction = `
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

export const call = calling("remove_entries", 7)

/** The parameters of the function after the first two. */
export const encode = ({ limit, namespace, prefix }: Removal, actor: string): ReadonlyArray<Parameter> => {
  const range = KeyOrder.rangeOf({ prefix })
  return [namespace, range?.low ?? "", range?.high ?? null, range === undefined ? 0 : limit, actor]
}

/** Reads what the function has returned at `now`. */
export const decode = (result: string, now: number): Applied => {
  const [more, ...rest] = result.split(",").map(Number)
  if (rest.length === 1) return { results: [], timestamp: now, lastSeq: rest[0]!, more: false }
  const [timestamp = now, base = 0, , records = 0] = rest
  const results = Array.from({ length: records }, () => ({ op: "delete", deleted: true }) as const)
  return { results, timestamp, lastSeq: base + records, more: more === 1 }
}
