/**
 * How tenants share what is remembered of writes with idempotency keys, as `Kv/IdempotencyShares` says, in the database.
 */
import * as Idempotency from "../../../Kv/Idempotency.ts"
import * as Shares from "../../../Kv/IdempotencyShares.ts"
import { settings, sharedCommitKeyed } from "./IdempotencyRecords.ts"

/** The bytes for which an outcome counts. */
const bytesOf = (outcome: string): string => `${Idempotency.overheadBytes} + length(${outcome})`

const cutoff = `now - ${Idempotency.lifetime}`

export const statements: ReadonlyArray<string> = [
  "ALTER TABLE causeway.remembered_writes ADD COLUMN tenant text COLLATE \"C\" NOT NULL DEFAULT ''",
  "CREATE INDEX remembered_writes_by_tenant ON causeway.remembered_writes (tenant, up_to)",
  // The bytes of each tenant, and the place of its last write. As those of a namespace, they change with each group.
  `CREATE TABLE causeway.remembered_tenants (
    tenant text COLLATE "C" PRIMARY KEY,
    bytes bigint NOT NULL,
    up_to bigint NOT NULL
  ) WITH (fillfactor = 50)`,
  `INSERT INTO causeway.remembered_tenants (tenant, bytes, up_to)
  SELECT '', sum(${bytesOf("outcome")}), max(up_to) FROM causeway.remembered_writes HAVING count(*) > 0`,
  // Compares the tenants after so many bytes were added, the last of them up to `newest`. Returns `;`, the bytes of all
  // and how many writes it has forgotten that were not too old. Called under the lock.
  `CREATE FUNCTION causeway.compare_tenants(now bigint, limit_bytes bigint, added bigint, newest bigint) RETURNS text
  LANGUAGE plpgsql${settings}
  AS $function$
  DECLARE
    step bigint := (limit_bytes + ${Shares.steps - 1}) / ${Shares.steps};
    most_forgotten bigint := 4 * step + 2 * added;
    portion bigint := most_forgotten / ${Idempotency.overheadBytes} + 1;
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
    IF oldest_at <= ${cutoff} OR oldest_at > now THEN
      WITH gone AS (
        DELETE FROM causeway.remembered_writes r
        USING (
          SELECT o.up_to FROM causeway.remembered_writes o WHERE o.up_to < newest ORDER BY o.up_to LIMIT portion
        ) d
        WHERE r.up_to = d.up_to AND r.kept_at <= ${cutoff}
        RETURNING r.tenant, ${bytesOf("r.outcome")} AS bytes
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
              SELECT w.up_to, ${bytesOf("w.outcome")} AS bytes FROM causeway.remembered_writes w
              WHERE w.tenant = t.tenant AND w.up_to < newest
              ORDER BY w.up_to LIMIT t.excess / ${Idempotency.overheadBytes} + 1
            ) o
          ) d
          WHERE r.up_to = d.up_to AND d.before < t.excess
          RETURNING r.kept_at, ${bytesOf("r.outcome")} AS bytes
        )
        SELECT coalesce(sum(gone.bytes), 0), count(*) FILTER (WHERE gone.kept_at > ${cutoff}) INTO freed, amount FROM gone;
        UPDATE causeway.remembered_tenants u SET bytes = u.bytes - freed WHERE u.tenant = t.tenant;
        total := total - freed;
        forgotten := forgotten + amount;
      END LOOP;
    END IF;
    DELETE FROM causeway.remembered_tenants u WHERE u.bytes <= 0;
    RETURN ';' || total || ',' || forgotten;
  END
  $function$`,
  // Adds keys to those of their tenants. Returns what `compare_tenants` does where a step is reached or `compares` is
  // true.
  `CREATE FUNCTION causeway.remember_writes(
    now bigint, limit_bytes bigint, compares boolean, key_tenants text[], key_ids text[], key_digests text[],
    outcomes text[]
  ) RETURNS text
  LANGUAGE plpgsql${settings}
  AS $function$
  DECLARE
    step bigint := (limit_bytes + ${Shares.steps - 1}) / ${Shares.steps};
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
      WHERE r.id = k.id AND r.kept_at <= ${cutoff}
      RETURNING r.tenant, ${bytesOf("r.outcome")} AS bytes
    )
    UPDATE causeway.remembered_tenants u SET bytes = u.bytes - g.bytes
    FROM (SELECT gone.tenant, sum(gone.bytes) AS bytes FROM gone GROUP BY gone.tenant) g
    WHERE u.tenant = g.tenant;
    INSERT INTO causeway.remembered_writes (up_to, tenant, id, digest, kept_at, outcome)
    SELECT last_end + sum(${bytesOf("k.outcome")}) OVER (ORDER BY k.position), k.tenant, k.id, k.digest, now, k.outcome
    FROM unnest(key_tenants, key_ids, key_digests, outcomes) WITH ORDINALITY k(tenant, id, digest, outcome, position)
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS added = ROW_COUNT;
    IF added <> amount THEN RAISE EXCEPTION 'a key is taken' USING ERRCODE = '40001'; END IF;
    SELECT last_end + sum(${bytesOf("k.outcome")}) INTO new_end FROM unnest(outcomes) k(outcome);
    INSERT INTO causeway.remembered_tenants AS u (tenant, bytes, up_to)
    SELECT k.tenant, sum(${bytesOf("k.outcome")}), new_end FROM unnest(key_tenants, outcomes) k(tenant, outcome)
    GROUP BY k.tenant
    ON CONFLICT (tenant) DO UPDATE SET bytes = u.bytes + excluded.bytes, up_to = excluded.up_to;
    IF NOT compares AND last_end / step = new_end / step THEN RETURN ''; END IF;
    RETURN causeway.compare_tenants(now, limit_bytes, new_end - last_end, new_end);
  END
  $function$`,
  // What nodes of earlier versions call: their keys are nobody's.
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
  sharedCommitKeyed,
  // Returns what the function of this name without tenants does, and what was found where tenants were compared.
  `CREATE FUNCTION causeway.remove_keyed(
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
]
