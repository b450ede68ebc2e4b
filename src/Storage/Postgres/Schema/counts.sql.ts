/**
 * The functions of the numbers of entries of namespaces and tenants: base numbers, and pending changes of them.
 *
 * A commit that adds or deletes entries appends rows with the differences. If each commit updated the base numbers
 * instead, it would leave a version of their row. As long as a snapshot is held, the next commits would visit all of
 * these versions under the lock of the log. Housekeeping folds pending changes into the base numbers, many at a time
 * and without that lock. Readers add both in one snapshot.
 *
 * Changes get their ids under the lock of the log, so that all changes with smaller ids than a visible one are visible.
 */
import { baseEntries, byIndex, comeOrGone, plpgsql, readPosition, tenantOf } from "./SqlParts.ts"

/**
 * Returns the sum of the pending changes of each namespace. A function, so that its scan starts at the position under
 * all settings.
 */
export const waitingCounts = plpgsql(
  `waiting_counts() RETURNS TABLE (namespace text, entries bigint)`,
  "STABLE ROWS 200",
  byIndex
)`
BEGIN
  RETURN QUERY SELECT c.namespace, sum(c.entries)::bigint FROM causeway.count_changes c
  WHERE c.id > (SELECT causeway.position('counts')) GROUP BY c.namespace;
END
`

export const namespacesView = `CREATE VIEW causeway.namespaces AS
  SELECT n.namespace, sum(n.entries)::bigint AS entries
  FROM (
    SELECT b.namespace, b.entries FROM causeway.base_namespaces b
    UNION ALL
    SELECT w.namespace COLLATE "C", w.entries FROM causeway.waiting_counts() w
  ) n
  GROUP BY n.namespace HAVING sum(n.entries) > 0`

export const tenantsView = `CREATE VIEW causeway.tenants AS
  SELECT t.tenant, sum(t.namespaces)::bigint AS namespaces, sum(t.entries)::bigint AS entries
  FROM (
    SELECT b.tenant, b.namespaces, b.entries FROM causeway.base_tenants b
    UNION ALL
    SELECT (${tenantOf("w.namespace")}) COLLATE "C", ${comeOrGone("w.before", "w.entries")}, w.entries
    FROM (
      SELECT c.namespace, c.entries, ${baseEntries('c.namespace COLLATE "C"')} AS before FROM causeway.waiting_counts() c
    ) w
  ) t
  GROUP BY t.tenant HAVING sum(t.namespaces) > 0`

/** The trigger that appends a change of the number of entries for each namespace of a statement. */
export const countEntries = plpgsql("count_entries() RETURNS trigger")`
BEGIN
  IF TG_OP = 'TRUNCATE' THEN
    -- A node that folds must not add what it has read before.
    PERFORM pg_advisory_xact_lock(1129794371);
    DELETE FROM causeway.count_changes;
    DELETE FROM causeway.base_namespaces;
    DELETE FROM causeway.base_tenants;
    RETURN NULL;
  END IF;
  -- A client that writes by hand may not have it.
  PERFORM FROM causeway.log FOR UPDATE;
  INSERT INTO causeway.count_changes (namespace, entries)
  SELECT c.namespace, CASE TG_OP WHEN 'INSERT' THEN count(*) ELSE - count(*) END FROM changed c GROUP BY c.namespace;
  RETURN NULL;
END
`

/**
 * Adds up to `portion` pending changes to the base numbers. Returns how many; 0 if fewer than `fewest` are pending, or
 * if another node is folding.
 */
export const foldCounts = plpgsql("fold_counts(fewest integer, portion integer) RETURNS integer", byIndex)`
DECLARE
  begun record; amount integer; last bigint; emptied text[];
BEGIN
  IF NOT pg_try_advisory_xact_lock(1129794371) THEN RETURN 0; END IF;
  ${readPosition("counts", "begun")}
  SELECT count(*), max(w.id) INTO amount, last
  FROM (SELECT c.id FROM causeway.count_changes c WHERE c.id > begun.up_to ORDER BY c.id LIMIT portion) w;
  IF amount = 0 OR amount < fewest THEN RETURN 0; END IF;
  WITH folded AS (
    DELETE FROM causeway.count_changes c WHERE c.id > begun.up_to AND c.id <= last RETURNING c.namespace, c.entries
  ), summed AS MATERIALIZED (
    SELECT f.namespace, sum(f.entries)::bigint AS entries FROM folded f GROUP BY f.namespace
  ), changed AS MATERIALIZED (
    SELECT s.namespace, s.entries, ${baseEntries("s.namespace")} AS before FROM summed s
  ), counted AS (
    INSERT INTO causeway.base_namespaces AS n (namespace, entries)
    SELECT c.namespace, c.entries FROM changed c WHERE c.entries <> 0 ORDER BY c.namespace
    ON CONFLICT (namespace) DO UPDATE SET entries = n.entries + excluded.entries
  ), counted_tenants AS (
    INSERT INTO causeway.base_tenants AS t (tenant, namespaces, entries)
    SELECT ${tenantOf("c.namespace")}, sum(${comeOrGone("c.before", "c.entries")}), sum(c.entries)
    FROM changed c WHERE c.entries <> 0 GROUP BY 1 ORDER BY 1
    ON CONFLICT (tenant) DO UPDATE
      SET namespaces = t.namespaces + excluded.namespaces, entries = t.entries + excluded.entries
  )
  SELECT array_agg(c.namespace) INTO emptied FROM changed c WHERE c.before + c.entries <= 0;
  IF emptied IS NOT NULL THEN
    DELETE FROM causeway.base_namespaces n WHERE n.namespace = ANY (emptied) AND n.entries <= 0;
    DELETE FROM causeway.base_tenants t
    WHERE t.tenant = ANY (ARRAY(SELECT ${tenantOf("e.namespace")} FROM unnest(emptied) e(namespace)))
      AND t.namespaces <= 0;
  END IF;
  INSERT INTO causeway.positions (name, id, up_to) VALUES ('counts', begun.id + 1, last);
  DELETE FROM causeway.positions p WHERE p.name = 'counts' AND p.id <= begun.id;
  RETURN amount;
END
`
