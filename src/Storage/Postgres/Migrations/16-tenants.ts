export const statements: ReadonlyArray<string> = [
  // Entries that are written while it runs would not be counted.
  "LOCK TABLE causeway.entries IN SHARE ROW EXCLUSIVE MODE",
  `CREATE TABLE causeway.tenants (
    tenant text COLLATE "C" NOT NULL PRIMARY KEY, namespaces bigint NOT NULL, entries bigint NOT NULL
  ) WITH (fillfactor = 50)`,
  `CREATE OR REPLACE FUNCTION causeway.count_entries() RETURNS trigger
  LANGUAGE plpgsql
  AS $function$
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
      )
      UPDATE causeway.tenants t SET namespaces = t.namespaces - g.namespaces, entries = t.entries - g.entries
      FROM (
        SELECT CASE WHEN starts_with(n.namespace, 'tenant:') THEN split_part(substr(n.namespace, 8), '/', 1) ELSE '' END AS tenant, count(*) FILTER (WHERE n.entries <= 0) AS namespaces,
          sum(n.deleted) AS entries
        FROM counted n GROUP BY 1
      ) g
      WHERE t.tenant = g.tenant;
      DELETE FROM causeway.namespaces n
      USING (SELECT DISTINCT c.namespace FROM changed c) d
      WHERE n.namespace = d.namespace AND n.entries <= 0;
      DELETE FROM causeway.tenants t
      USING (SELECT DISTINCT CASE WHEN starts_with(c.namespace, 'tenant:') THEN split_part(substr(c.namespace, 8), '/', 1) ELSE '' END AS tenant FROM changed c) d
      WHERE t.tenant = d.tenant AND t.namespaces <= 0;
    ELSE
      DELETE FROM causeway.namespaces;
      DELETE FROM causeway.tenants;
    END IF;
    RETURN NULL;
  END
  $function$`,
  `INSERT INTO causeway.tenants (tenant, namespaces, entries)
    SELECT CASE WHEN starts_with(n.namespace, 'tenant:') THEN split_part(substr(n.namespace, 8), '/', 1) ELSE '' END, count(*), sum(n.entries) FROM causeway.namespaces n GROUP BY 1`
]
