/**
 * Writes with idempotency keys. Their functions look the keys up, do as `commit_group` and `remove_entries` do, and
 * remember what was applied, as `Kv/Idempotency` writes it, in one transaction.
 *
 * Keys are added under the lock that every writer takes, so that of two nodes with the same key one applies its write.
 * The other one finds the key as it adds its own; it fails with 40001 and is called again with `lock_first`, by which
 * it finds the key before it applies anything.
 */
import * as Idempotency from "../../../Kv/Idempotency.ts"
import type { Comparison } from "../../../Kv/IdempotencyShares.ts"
import type { IdempotencyKey, Removal, Write } from "../../../Kv/Write.ts"
import * as Encoding from "../Database/Encoding.ts"
import { calling, type Parameter } from "../Database/Statement.ts"
import type { Outcome } from "./Group.ts"
import * as Removals from "./Removal.ts"

/** Settings of functions that look rows up by an index. */
export const settings = `
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
SET plan_cache_mode = force_generic_plan`

/** The bytes of all rows before one. */
const startOf = (row: string): string => `${row}.up_to - ${Idempotency.overheadBytes} - length(${row}.outcome)`

/** How a version of the function differs from the others. */
interface Variant {
  readonly create: string
  /** Parameters after those of all versions. */
  readonly parameters: string
  readonly declarations: string
  /** Locks the log. */
  readonly lock: string
  /** Puts what all locks were waited for in place of what `commit_group` was. */
  readonly total: string
  /** Collects what `remember` needs of a write beside its id and its digest. */
  readonly collect: string
  /** What is done once the lock is held, before keys are added. */
  readonly check: string
  readonly remember: string
  readonly returned: string
}

/** What the versions have in common that do not know tenants. */
const withoutTenants = {
  parameters: "",
  collect: "",
  remember: "PERFORM causeway.remember_writes(now, limit_bytes, kept_ids, kept_digests, outcomes);",
  returned: "answer"
}

const plainLock = "PERFORM FROM causeway.log FOR UPDATE;"

/** Returns what `recall_writes` does, having applied nothing, or else what `commit_group` does. */
const commitKeyedOf = ({
  check,
  collect,
  create,
  declarations,
  lock,
  parameters,
  remember,
  returned,
  total
}: Variant): string =>
  `${create} causeway.commit_keyed(
    group_id uuid, now bigint, lock_first boolean, namespaces text[], keys text[], write_sizes integer[], actors text[],
    op_keys integer[], op_values text[], op_expiries bigint[], op_matches text[], op_none_matches text[],
    limit_bytes bigint, key_writes integer[], key_ids text[], key_digests text[], key_expiries text[]${parameters}
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
    outcomes text[] := '{}';${declarations}
  BEGIN
    IF lock_first THEN ${lock} END IF;
    answer := causeway.recall_writes(now, key_writes, key_ids, key_digests);
    IF answer IS NOT NULL THEN RETURN answer; END IF;
    answer := causeway.commit_group(
      group_id, now, lock_first, namespaces, keys, write_sizes, actors, op_keys, op_values, op_expiries, op_matches,
      op_none_matches
    );
    ${lock}
    numbers := string_to_array(answer, ',')::bigint[];${total}
    FOR w IN 1 .. cardinality(write_sizes) LOOP
      IF key_at <= cardinality(key_writes) AND key_writes[key_at] = w THEN
        IF numbers[at] = 0 THEN
          kept_ids := kept_ids || key_ids[key_at];
          kept_digests := kept_digests || key_digests[key_at];${collect}
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
    END LOOP;${check}
    ${remember}
    PERFORM causeway.mark_group(group_id, answer);
    RETURN ${returned};
  END
  $function$`

/** How long it has waited for the lock is what it has before and after `commit_group`, and what that has. */
const timed = {
  declarations: `
    lock_asked timestamptz;
    lock_wait bigint := 0;`,
  lock: `
    lock_asked := clock_timestamp();
    ${plainLock}
    lock_wait := lock_wait + (extract(epoch FROM clock_timestamp() - lock_asked) * 1000000)::bigint;`,
  total: `
    numbers[cardinality(numbers)] := greatest(numbers[cardinality(numbers)], 0) + lock_wait;
    answer := array_to_string(numbers, ',');`
}

/** The second version. A mark of `commit_group` has only its own wait for the lock. */
export const timedCommitKeyed = commitKeyedOf({
  create: "CREATE OR REPLACE FUNCTION",
  check: "",
  ...withoutTenants,
  ...timed
})

/** What nodes of earlier versions do not call. It returns what was found where tenants were compared. */
const shared = {
  ...timed,
  parameters: ", key_tenants text[], compares boolean",
  declarations: `${timed.declarations}
    kept_tenants text[] := '{}';
    found text;`,
  collect: `
          kept_tenants := kept_tenants || key_tenants[key_at];`,
  remember:
    "found := causeway.remember_writes(now, limit_bytes, compares, kept_tenants, kept_ids, kept_digests, outcomes);",
  returned: "answer || found"
}

/** The third version, beside the second. */
export const sharedCommitKeyed = commitKeyedOf({ create: "CREATE FUNCTION", check: "", ...shared })

/**
 * A write may have been refused because its first try was applied by another node after the keys were looked up. Under
 * the lock the key is there, and the function is called again as where a key is found to be taken.
 */
const checkRefused = `
    IF NOT lock_first AND cardinality(kept_ids) < cardinality(key_ids)
        AND causeway.recall_writes(now, key_writes, key_ids, key_digests) IS NOT NULL THEN
      RAISE EXCEPTION 'a key is taken' USING ERRCODE = '40001';
    END IF;`

/** The versions of now of both functions. */
export const checkedCommitKeyed: ReadonlyArray<string> = [{ ...withoutTenants, ...timed }, shared].map(version =>
  commitKeyedOf({ create: "CREATE OR REPLACE FUNCTION", check: checkRefused, ...version })
)

/** Rows are ordered by the bytes of all rows up to each, so that the bytes of all follow from the first and the last. */
export const statements: ReadonlyArray<string> = [
  `CREATE TABLE causeway.remembered_writes (
    up_to bigint PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    digest text NOT NULL,
    kept_at bigint NOT NULL,
    outcome text NOT NULL
  )`,
  // For each key that is remembered: the number of its write, whether the digest is the same, and what is kept.
  `CREATE FUNCTION causeway.recall_writes(now bigint, key_writes integer[], key_ids text[], key_digests text[])
  RETURNS text
  LANGUAGE plpgsql${settings}
  AS $function$
  DECLARE
    found text;
  BEGIN
    SELECT json_agg(json_build_array(k.write, r.digest = k.digest, r.outcome))::text INTO found
    FROM unnest(key_writes, key_ids, key_digests) k(write, id, digest)
    JOIN causeway.remembered_writes r ON r.id = k.id AND r.kept_at > now - ${Idempotency.lifetime};
    RETURN found;
  END
  $function$`,
  // Adds keys, and removes those that are too old and the oldest above the limit: twice the bytes of the added ones, at
  // least. Called under the lock.
  `CREATE FUNCTION causeway.remember_writes(
    now bigint, limit_bytes bigint, key_ids text[], key_digests text[], outcomes text[]
  ) RETURNS void
  LANGUAGE plpgsql${settings}
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
    WHERE r.id = k.id AND r.kept_at <= now - ${Idempotency.lifetime};
    INSERT INTO causeway.remembered_writes (up_to, id, digest, kept_at, outcome)
    SELECT last_end + sum(${Idempotency.overheadBytes} + length(k.outcome)) OVER (ORDER BY k.position), k.id, k.digest, now, k.outcome
    FROM unnest(key_ids, key_digests, outcomes) WITH ORDINALITY k(id, digest, outcome, position)
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS added = ROW_COUNT;
    IF added <> amount THEN RAISE EXCEPTION 'a key is taken' USING ERRCODE = '40001'; END IF;
    SELECT r.up_to INTO new_end FROM causeway.remembered_writes r ORDER BY r.up_to DESC LIMIT 1;
    SELECT r.up_to, ${startOf("r")} AS start, r.kept_at INTO oldest
    FROM causeway.remembered_writes r ORDER BY r.up_to LIMIT 1;
    IF oldest.start >= new_end - limit_bytes AND oldest.kept_at > now - ${Idempotency.lifetime} THEN RETURN; END IF;
    SELECT max(r.up_to) INTO due
    FROM (
      SELECT o.up_to, ${startOf("o")} AS start, o.kept_at FROM causeway.remembered_writes o
      ORDER BY o.up_to LIMIT 2 * ((new_end - last_end) / ${Idempotency.overheadBytes} + 1)
    ) r
    WHERE r.up_to < new_end AND (r.start < new_end - limit_bytes OR r.kept_at <= now - ${Idempotency.lifetime});
    DELETE FROM causeway.remembered_writes r WHERE r.up_to <= due;
  END
  $function$`,
  // Marks a group as committed that has added nothing to the log. A mark that keeps it from happening makes it fail.
  `CREATE FUNCTION causeway.mark_group(group_id uuid, answer text) RETURNS void
  LANGUAGE plpgsql
  AS $function$
  BEGIN
    IF NOT EXISTS (SELECT FROM causeway.commits c WHERE c.id = group_id AND c.result IS NOT NULL) THEN
      INSERT INTO causeway.commits (id, result) VALUES (group_id, answer);
    END IF;
  END
  $function$`,
  commitKeyedOf({
    create: "CREATE FUNCTION",
    declarations: "",
    lock: plainLock,
    total: "",
    check: "",
    ...withoutTenants
  }),
  // Returns what `recall_writes` does, having deleted nothing, or else what `remove_entries` does.
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

export const commit = calling("commit_keyed", 19)

export const remove = calling("remove_keyed", 12)

/** How much may be remembered, and whether tenants are compared however much is added. */
export interface Bounds {
  readonly limitBytes: number
  readonly compares: boolean
}

/** The parameters of `commit_keyed` after those of `commit_group`. */
export const encode = (writes: ReadonlyArray<Write>, { compares, limitBytes }: Bounds): ReadonlyArray<Parameter> => {
  const numbers: Array<number> = []
  const tenants: Array<string> = []
  const ids: Array<string> = []
  const digests: Array<string> = []
  const expiries: Array<string> = []
  for (const [index, write] of writes.entries()) {
    const key = write.idempotencyKey
    if (key === undefined) continue
    numbers.push(index + 1)
    tenants.push(key.tenant)
    ids.push(key.id)
    digests.push(key.digest)
    expiries.push(Idempotency.expiriesOf(write))
  }
  return [
    limitBytes,
    Encoding.integers(numbers),
    Encoding.texts(ids),
    Encoding.texts(digests),
    Encoding.texts(expiries),
    Encoding.texts(tenants),
    compares
  ]
}

/** The parameters of `remove_keyed` after the first two. */
export const encodeRemoval = (
  removal: Removal,
  actor: string,
  { digest, id, tenant }: IdempotencyKey,
  { compares, limitBytes }: Bounds
): ReadonlyArray<Parameter> => [...Removals.encode(removal, actor), limitBytes, id, digest, tenant, compares]

/** What a function has returned. */
export type Answer =
  /** What became of the writes that are remembered, by their index. Nothing was applied. */
  | { readonly _tag: "Replayed"; readonly outcomes: ReadonlyMap<number, Outcome> }
  /** What `commit_group` or `remove_entries` has returned, and what was found where tenants were compared. */
  | { readonly _tag: "Applied"; readonly result: string; readonly comparison: Comparison | undefined }

export const decode = (writes: ReadonlyArray<Write>, answer: string): Answer => {
  if (!answer.startsWith("[")) {
    const [result = "", numbers] = answer.split(";")
    const [bytes = 0, forgotten = 0] = numbers?.split(",").map(Number) ?? []
    return { _tag: "Applied", result, comparison: numbers === undefined ? undefined : { bytes, forgotten } }
  }
  const rows = JSON.parse(answer) as ReadonlyArray<readonly [write: number, isSame: boolean, kept: string]>
  const outcomes = new Map(
    rows.map(([number, isSame, kept]): [number, Outcome] => [
      number - 1,
      isSame ? { _tag: "Committed", committed: Idempotency.decode(writes[number - 1]!, kept) } : { _tag: "KeyReused" }
    ])
  )
  return { _tag: "Replayed", outcomes }
}
