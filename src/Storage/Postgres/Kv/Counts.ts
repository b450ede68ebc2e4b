/**
 * The numbers of namespaces and tenants, as part of the schema: base numbers, and changes of these that wait.
 *
 * Whoever adds or deletes entries adds rows with what changes, which nobody else writes. Base numbers that each commit
 * updated would leave a version of their row for each, and the next commit would visit all of them under the lock of the
 * log for as long as somebody holds a snapshot. Housekeeping folds what waits into the base numbers, many changes at a
 * time, and without that lock. Readers add both in one snapshot.
 *
 * Changes get their ids under the lock of the log, so that of those up to one that is visible none is missing.
 */
import type { Query } from "../Database/Statement.ts"
import * as Positions from "./Positions.ts"
import { tenantOf } from "./TenantOf.ts"

/** Changes that wait before they are folded: readers read all of them, and each time they are folded leaves versions. */
const leastFolded = 1000

/** Changes that are folded at once. */
const portion = 10_000

/** Milliseconds between two looks at how many changes wait. */
export const interval = 5000

/** Who folds has an advisory lock of this key: `CWKC`. */
const lockKey = 0x43574b43

/** Folds a portion of changes, unless only few wait or another node does. Returns whether more may wait. */
export const fold: Query<boolean> = {
  statement: { name: "fold_counts", text: "SELECT causeway.fold_counts($1, $2)" },
  values: [leastFolded, portion],
  decode: ([row]) => row![0] === portion
}

/** The entries of a namespace without the changes that wait. */
export const baseEntries = (namespace: string): string =>
  `coalesce((SELECT b.entries FROM causeway.base_namespaces b WHERE b.namespace = ${namespace}), 0)`

/** By how much the number of namespaces of a tenant changes with one that has had `before` entries and gets more. */
export const comeOrGone = (before: string, more: string): string =>
  `CASE WHEN ${before} + ${more} > 0 THEN 1 ELSE 0 END - CASE WHEN ${before} > 0 THEN 1 ELSE 0 END`

export const statements: ReadonlyArray<string> = [
  // Whoever writes meanwhile would change base numbers.
  "LOCK TABLE causeway.entries IN SHARE ROW EXCLUSIVE MODE",
  "ALTER TABLE causeway.namespaces RENAME TO base_namespaces",
  "ALTER TABLE causeway.tenants RENAME TO base_tenants",
  `CREATE TABLE causeway.count_changes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, namespace text COLLATE "C" NOT NULL, entries bigint NOT NULL
  )`,
  "INSERT INTO causeway.positions (name, id, up_to) VALUES ('counts', 1, 0)",
  // By namespace the sum of what waits. A function, as its scan must begin at the position under all settings.
  `CREATE FUNCTION causeway.waiting_counts() RETURNS TABLE (namespace text, entries bigint)
  LANGUAGE plpgsql STABLE ROWS 200${Positions.settings}
  AS $function$
  BEGIN
    RETURN QUERY SELECT c.namespace, sum(c.entries)::bigint FROM causeway.count_changes c
    WHERE c.id > ${Positions.of("counts")} GROUP BY c.namespace;
  END
  $function$`,
  // Nodes of earlier versions read these as the tables that they were.
  `CREATE VIEW causeway.namespaces AS
  SELECT n.namespace, sum(n.entries)::bigint AS entries
  FROM (
    SELECT b.namespace, b.entries FROM causeway.base_namespaces b
    UNION ALL
    SELECT w.namespace COLLATE "C", w.entries FROM causeway.waiting_counts() w
  ) n
  GROUP BY n.namespace HAVING sum(n.entries) > 0`,
  `CREATE VIEW causeway.tenants AS
  SELECT t.tenant, sum(t.namespaces)::bigint AS namespaces, sum(t.entries)::bigint AS entries
  FROM (
    SELECT b.tenant, b.namespaces, b.entries FROM causeway.base_tenants b
    UNION ALL
    SELECT (${tenantOf("w.namespace")}) COLLATE "C", ${comeOrGone("w.before", "w.entries")}, w.entries
    FROM (
      SELECT c.namespace, c.entries, ${baseEntries('c.namespace COLLATE "C"')} AS before FROM causeway.waiting_counts() c
    ) w
  ) t
  GROUP BY t.tenant HAVING sum(t.namespaces) > 0`,
  `CREATE OR REPLACE FUNCTION causeway.count_entries() RETURNS trigger
  LANGUAGE plpgsql
  AS $function$
  BEGIN
    IF TG_OP = 'TRUNCATE' THEN
      -- Who folds must not add what it has read before.
      PERFORM pg_advisory_xact_lock(${lockKey});
      DELETE FROM causeway.count_changes;
      DELETE FROM causeway.base_namespaces;
      DELETE FROM causeway.base_tenants;
      RETURN NULL;
    END IF;
    -- Whoever writes by hand need not have it.
    PERFORM FROM causeway.log FOR UPDATE;
    INSERT INTO causeway.count_changes (namespace, entries)
    SELECT c.namespace, CASE TG_OP WHEN 'INSERT' THEN count(*) ELSE - count(*) END FROM changed c GROUP BY c.namespace;
    RETURN NULL;
  END
  $function$`,
  // Returns how many changes it has folded: none where there are fewer than \`fewest\`, or while somebody else does.
  `CREATE FUNCTION causeway.fold_counts(fewest integer, portion integer) RETURNS integer
  LANGUAGE plpgsql${Positions.settings}
  AS $function$
  DECLARE
    begun record;
    amount integer;
    last bigint;
    emptied text[];
  BEGIN
    IF NOT pg_try_advisory_xact_lock(${lockKey}) THEN RETURN 0; END IF;
    ${Positions.newest("counts", "INTO begun")};
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
  $function$`
]
