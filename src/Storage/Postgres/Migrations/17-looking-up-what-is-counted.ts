/**
 * Namespaces and tenants are looked up by their names. In a join with the deleted rows, the planner read all of them, as it
 * expected none to be empty.
 */
export const statements: ReadonlyArray<string> = [
  `CREATE OR REPLACE FUNCTION causeway.count_entries() RETURNS trigger
  LANGUAGE plpgsql
  AS $function$
  DECLARE
    emptied text[];
  BEGIN
    IF TG_OP = 'INSERT' THEN
      WITH added AS MATERIALIZED (
        SELECT c.namespace, count(*) AS entries FROM changed c GROUP BY c.namespace
      ), counted AS (
        INSERT INTO causeway.namespaces AS n (namespace, entries)
        SELECT a.namespace, a.entries FROM added a ORDER BY a.namespace
        ON CONFLICT (namespace) DO UPDATE SET entries = n.entries + excluded.entries
        RETURNING n.namespace, n.entries
      )
      INSERT INTO causeway.tenants AS t (tenant, namespaces, entries)
      SELECT CASE WHEN starts_with(a.namespace, 'tenant:') THEN split_part(substr(a.namespace, 8), '/', 1) ELSE '' END, count(*) FILTER (WHERE n.entries = a.entries), sum(a.entries)
      FROM added a JOIN counted n ON n.namespace = a.namespace GROUP BY 1 ORDER BY 1
      ON CONFLICT (tenant) DO UPDATE
        SET namespaces = t.namespaces + excluded.namespaces, entries = t.entries + excluded.entries;
    ELSIF TG_OP = 'DELETE' THEN
      WITH deleted AS MATERIALIZED (
        SELECT c.namespace, count(*) AS entries FROM changed c GROUP BY c.namespace
      ), counted AS (
        UPDATE causeway.namespaces n SET entries = n.entries - d.entries FROM deleted d
        WHERE n.namespace = d.namespace
        RETURNING n.namespace, n.entries, d.entries AS deleted
      ), lessened AS (
      UPDATE causeway.tenants t SET namespaces = t.namespaces - g.namespaces, entries = t.entries - g.entries
      FROM (
        SELECT CASE WHEN starts_with(n.namespace, 'tenant:') THEN split_part(substr(n.namespace, 8), '/', 1) ELSE '' END AS tenant, count(*) FILTER (WHERE n.entries <= 0) AS namespaces,
          sum(n.deleted) AS entries
        FROM counted n GROUP BY 1
      ) g
      WHERE t.tenant = g.tenant
      )
      SELECT array_agg(n.namespace) FILTER (WHERE n.entries <= 0) INTO emptied FROM counted n;
      IF emptied IS NOT NULL THEN
        DELETE FROM causeway.namespaces n WHERE n.namespace = ANY (emptied);
        DELETE FROM causeway.tenants t
        WHERE t.tenant = ANY (ARRAY(SELECT CASE WHEN starts_with(e.namespace, 'tenant:') THEN split_part(substr(e.namespace, 8), '/', 1) ELSE '' END FROM unnest(emptied) e(namespace)))
          AND t.namespaces <= 0;
      END IF;
    ELSE
      DELETE FROM causeway.namespaces;
      DELETE FROM causeway.tenants;
    END IF;
    RETURN NULL;
  END
  $function$`,
  "ALTER FUNCTION causeway.expire(bigint, integer) SET enable_hashjoin = off",
  "ALTER FUNCTION causeway.expire(bigint, integer) SET enable_mergejoin = off"
]
