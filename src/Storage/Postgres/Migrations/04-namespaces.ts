/**
 * Triggers keep the number of entries of each namespace, also for nodes of earlier versions. Each runs once for a statement.
 */
export const statements: ReadonlyArray<string> = [
  'CREATE TABLE causeway.namespaces (namespace text COLLATE "C" NOT NULL PRIMARY KEY, entries bigint NOT NULL) WITH (fillfactor = 50)',
  `CREATE FUNCTION causeway.count_entries() RETURNS trigger
  LANGUAGE plpgsql
  AS $function$
  BEGIN
    IF TG_OP = 'INSERT' THEN
      INSERT INTO causeway.namespaces AS n (namespace, entries)
      SELECT c.namespace, count(*) FROM changed c GROUP BY c.namespace ORDER BY c.namespace
      ON CONFLICT (namespace) DO UPDATE SET entries = n.entries + excluded.entries;
    ELSIF TG_OP = 'DELETE' THEN
      UPDATE causeway.namespaces n SET entries = n.entries - d.entries
      FROM (SELECT c.namespace, count(*) AS entries FROM changed c GROUP BY c.namespace) d
      WHERE n.namespace = d.namespace;
      DELETE FROM causeway.namespaces n
      USING (SELECT DISTINCT c.namespace FROM changed c) d
      WHERE n.namespace = d.namespace AND n.entries <= 0;
    ELSE
      DELETE FROM causeway.namespaces;
    END IF;
    RETURN NULL;
  END
  $function$`,
  `CREATE TRIGGER entries_inserted AFTER INSERT ON causeway.entries
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION causeway.count_entries()`,
  `CREATE TRIGGER entries_deleted AFTER DELETE ON causeway.entries
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION causeway.count_entries()`,
  `CREATE TRIGGER entries_truncated AFTER TRUNCATE ON causeway.entries
    FOR EACH STATEMENT EXECUTE FUNCTION causeway.count_entries()`,
  "INSERT INTO causeway.namespaces (namespace, entries) SELECT namespace, count(*) FROM causeway.entries GROUP BY namespace"
]
