/** What large tables hold while plans are tested. */

/** Those that grow with what is stored. The others have a row for each node, or for each write of the last minute. */
export const large = [
  ...["entries", "tombstones", "changes", "base_namespaces", "base_tenants", "count_changes", "remembered_writes"],
  ...["histories", "events", "receipts", "launch_configurations", "checkpoints"]
]

/** The time of a request, in epoch milliseconds. */
export const now = 1_700_000_000_000
/** The id of the node that runs the statements, and that of one whose lease has ended. */
export const node = "11111111-1111-4111-8111-111111111111"
export const gone = "22222222-2222-4222-8222-222222222222"

/** Entries that have expired, and sessions with something to recover. */
export const due = 2000
export const unfinished = 1000

/** One namespace with most entries, and many with few; as many records; one long history, and many short ones. */
export const content: ReadonlyArray<string> = [
  `INSERT INTO causeway.entries (namespace, key, version, updated_at, expires_at, updated_by, value)
   SELECT CASE
       WHEN n <= 80000 THEN 'tenant:big/all'
       WHEN n <= 90000 THEN 'tenant:big/due'
       WHEN n <= 150000 THEN 'tenant:t' || n % 3000 || '/s' || n % 15000
       ELSE 'plain-' || n % 5000
     END, 'k' || lpad(n::text, 6, '0'), 1, 1,
     CASE WHEN n BETWEEN 80001 AND 80000 + ${due} THEN n - 80000 WHEN n BETWEEN 82001 AND 90000 THEN ${now} + n END, 'tester', '1'
   FROM generate_series(1, 160000) n`,
  `INSERT INTO causeway.changes (seq, op, namespace, key, version, actor, timestamp, value)
   SELECT n, CASE WHEN n % 4 = 0 THEN 'delete' ELSE 'set' END,
     CASE WHEN n % 10 < 8 THEN 'tenant:big/all' WHEN n % 10 = 8 THEN 'tenant:t' || n % 3000 || '/s' ELSE 'plain-' || n % 5000 END,
     'k' || lpad(n::text, 6, '0'), 1, 'tester', n, '1'
   FROM generate_series(1, 160000) n`,
  `INSERT INTO causeway.tombstones (namespace, key, version, seq)
   SELECT c.namespace, 'gone' || c.seq, 2, c.seq FROM causeway.changes c WHERE c.op = 'delete'`,
  `INSERT INTO causeway.remembered_writes (up_to, tenant, id, digest, kept_at, outcome)
   SELECT 300 * n, 't' || n % 1000, 'id' || n, 'digest', ${now}, repeat('1', 44) FROM generate_series(1, 40000) n`,
  `INSERT INTO causeway.remembered_tenants (tenant, bytes, up_to)
   SELECT tenant, sum(300), max(up_to) FROM causeway.remembered_writes GROUP BY tenant`,
  `INSERT INTO causeway.nodes (id, since, expires_at) VALUES
     ('${node}', now() - interval '1 hour', now() + interval '1 day'),
     ('${gone}', now() - interval '1 hour', now() - interval '1 minute')`,
  // Half of those with something to recover are of a node that is gone.
  `INSERT INTO causeway.histories (session, epoch, head, bytes, owner, token, recovery_state)
   SELECT 't' || n % 3000 || '/' || n, 'e', CASE n WHEN 1 THEN 40000 ELSE 2 END, CASE n WHEN 1 THEN 400000 ELSE 20 END,
     CASE n % 2 WHEN 1 THEN '${node}'::uuid ELSE '${gone}'::uuid END, n, CASE WHEN n <= ${unfinished} THEN '{}' END
   FROM generate_series(1, 60000) n`,
  `INSERT INTO causeway.events (history, seq, timestamp, size, text)
   SELECT h.id, s, h.id * 10 + s, 10, '0123456789' FROM causeway.histories h, generate_series(1, h.head) s`,
  `INSERT INTO causeway.receipts (history, id, seq, digest)
   SELECT e.history, '"m' || e.seq || '"', e.seq, 'digest' FROM causeway.events e WHERE e.seq <= 5000`,
  `INSERT INTO causeway.launch_configurations (session, environment)
   SELECT session, '{}' FROM causeway.histories`,
  `INSERT INTO causeway.checkpoints (history, seq, epoch, text) SELECT id, 1, 'e', '{}' FROM causeway.histories`,
  // As housekeeping does.
  "SELECT causeway.fold_counts(1, 1000000)",
  "ANALYZE"
]
