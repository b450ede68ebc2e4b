/**
 * Positions from which scans start. A deleted row stays in its index as long as a snapshot from before is held, and a
 * scan that starts at the least value visits all such rows. A position is the value up to which no live row exists.
 *
 * A new row with the next id moves a position. An update would leave versions of one row, all of which each reader
 * visits; the row with the greatest id is found without visiting those before it. A lock protects each move.
 */

/**
 * `expiry` is in epoch milliseconds, `counts` an id of `count_changes`, `commits` in epoch microseconds, `idempotency`
 * an `up_to` of `remembered_writes`, and `events` in epoch milliseconds. Only functions of the database read the last
 * three.
 */
export type Name = "expiry" | "counts" | "commits" | "idempotency" | "events"

/** SQL for a position. A statement reads it once, in its snapshot. */
export const of = (name: Name): string => `(SELECT causeway.position('${name}'))`
