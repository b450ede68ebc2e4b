/**
 * The functions of the totals of tenants with idempotency keys, as `Kv/IdempotencyShares` describes them. The numbers in the
 * texts are those of `idempotency.sql.ts`.
 */

/**
 * Deletes rows of `remembered_tenants` by their addresses. Other scans are turned off: most rows of the table are dead, so
 * that the planner expects few and would choose a scan of all of them.
 */
export const deleteTotals = `CREATE FUNCTION causeway.delete_totals(places tid[]) RETURNS void
  LANGUAGE plpgsql
SET enable_seqscan = off SET enable_indexscan = off SET enable_bitmapscan = off SET jit = off
  AS $function$
  BEGIN
    DELETE FROM causeway.remembered_tenants u WHERE u.ctid = ANY (places);
  END
  $function$`

/** Subtracts bytes from the total of a tenant, and removes a total that has none left. Called under the lock of the log. */
export const lowerTotal = `CREATE FUNCTION causeway.lower_total(of_tenant text, freed bigint) RETURNS void
  LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off
  AS $function$
  DECLARE
    newest bigint;
  BEGIN
    SELECT u.up_to INTO newest FROM causeway.remembered_tenants u WHERE u.tenant = of_tenant ORDER BY u.up_to DESC LIMIT 1;
    DELETE FROM causeway.remembered_tenants u WHERE u.tenant = of_tenant AND u.up_to = newest AND u.bytes <= freed;
    IF NOT FOUND THEN
      UPDATE causeway.remembered_tenants u SET bytes = u.bytes - freed WHERE u.tenant = of_tenant AND u.up_to = newest;
    END IF;
  END
  $function$`

/**
 * Compares the tenants, after `added` bytes were added, the last of them up to `newest`. Returns `;`, the bytes of all
 * tenants, `,` and how many records were removed before they were too old. Called under the lock of the log.
 *
 * Each tenant has one row with its total. Scans of records start at the position: no live record is before it.
 */
export const compareTenants = `CREATE FUNCTION causeway.compare_tenants(now bigint, limit_bytes bigint, added bigint, newest bigint) RETURNS text
  LANGUAGE plpgsql
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan
  AS $function$
  DECLARE
    step bigint := (limit_bytes + 511) / 512;
    max_forgotten bigint := 4 * step + 2 * added;
    portion bigint := max_forgotten / 256 + 1;
    oldest_expiry bigint := now - 86400000;
    start record;
    oldest record;
    has_dead_rows boolean;
    tenant_names text[];
    tenant_bytes bigint[];
    tenant_ends bigint[];
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
    SELECT p.id, p.up_to INTO start FROM causeway.positions p WHERE p.name = 'idempotency' ORDER BY p.id DESC LIMIT 1;
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
          RETURNING r.tenant, 256 + length(r.outcome) AS bytes
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
              SELECT w.up_to, 256 + length(w.outcome) AS bytes FROM causeway.remembered_writes w
              WHERE w.tenant = t.tenant AND w.up_to > oldest.before AND w.up_to < newest
              ORDER BY w.up_to LIMIT t.excess / 256 + 1
            ) o
          ) d
          WHERE r.up_to = d.up_to AND d.before < t.excess
          RETURNING r.kept_at, 256 + length(r.outcome) AS bytes
        )
        SELECT coalesce(sum(g.bytes), 0), count(*) FILTER (WHERE g.kept_at > oldest_expiry) INTO freed, amount FROM gone g;
        PERFORM causeway.lower_total(t.tenant, freed);
        total := total - freed;
        forgotten := forgotten + amount;
      END LOOP;
    END IF;
    RETURN ';' || total || ',' || forgotten;
  END
  $function$`
