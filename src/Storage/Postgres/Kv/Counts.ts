/**
 * The numbers of entries of namespaces and tenants: base numbers, and pending changes of them.
 *
 * A commit that adds or deletes entries appends rows with the differences. If each commit updated the base numbers
 * instead, it would leave a version of their row. As long as a snapshot is held, the next commits would visit all of
 * these versions under the lock of the log. Housekeeping folds pending changes into the base numbers, many at a time
 * and without that lock. Readers add both in one snapshot.
 *
 * Changes get their ids under the lock of the log, so that all changes with smaller ids than a visible one are visible.
 */
import type { Query } from "../Database/Statement.ts"

/**
 * The number of pending changes from which on they are folded: readers read all of them, and each fold leaves versions.
 */
const leastFolded = 1000

/** The maximum number of changes in one fold. */
const portion = 10_000

/** Milliseconds between two folds. */
export const interval = 5000

/**
 * Folds a portion of changes, unless few are pending or another node is folding. Returns whether more may be pending.
 */
export const fold: Query<boolean> = {
  statement: { name: "fold_counts", text: "SELECT causeway.fold_counts($1, $2)" },
  values: [leastFolded, portion],
  decode: ([row]) => row![0] === portion
}

/** SQL for the entries of a namespace without pending changes. */
export const baseEntries = (namespace: string): string =>
  `coalesce((SELECT b.entries FROM causeway.base_namespaces b WHERE b.namespace = ${namespace}), 0)`

/**
 * SQL for the change in the number of namespaces of a tenant when one of them that has `before` entries gets `more`.
 */
export const comeOrGone = (before: string, more: string): string =>
  `CASE WHEN ${before} + ${more} > 0 THEN 1 ELSE 0 END - CASE WHEN ${before} > 0 THEN 1 ELSE 0 END`
