import { countEntries, foldCounts, namespacesView, tenantsView, waitingCounts } from "../Kv/counts.sql.ts"

export const statements: ReadonlyArray<string> = [
  // Entries that are written while it runs would not be counted.
  "LOCK TABLE causeway.entries IN SHARE ROW EXCLUSIVE MODE",
  "ALTER TABLE causeway.namespaces RENAME TO base_namespaces",
  "ALTER TABLE causeway.tenants RENAME TO base_tenants",
  `CREATE TABLE causeway.count_changes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, namespace text COLLATE "C" NOT NULL, entries bigint NOT NULL
  )`,
  "INSERT INTO causeway.positions (name, id, up_to) VALUES ('counts', 1, 0)",
  waitingCounts,
  namespacesView,
  tenantsView,
  countEntries,
  foldCounts
]
