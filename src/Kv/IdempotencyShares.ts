/**
 * Tenants share the bytes for idempotency records by max-min fairness. When all together exceed the limit, tenants
 * above a share lose their oldest records, and tenants below it lose none.
 *
 * Adding a record only adds to the bytes of its tenant. The tenants are compared each time that the added bytes reach a
 * step. All backends follow these rules; the PostgreSQL backend implements them in its functions.
 */
import { overheadBytes } from "./Idempotency.ts"

/** The number of steps in the limit. */
export const steps = 512

/** The bytes of a step: after so many added bytes the tenants are compared. */
export const stepOf = (limitBytes: number): number => Math.ceil(limitBytes / steps)

/**
 * Whether the tenants are due for a comparison, given the bytes of all records ever added, before and after an
 * addition.
 */
export const isStepReached = (limitBytes: number, before: number, after: number): boolean => {
  const step = stepOf(limitBytes)
  return Math.floor(before / step) !== Math.floor(after / step)
}

/** After this many milliseconds the next addition causes a comparison, so that expired records are removed. */
const intervalMillis = 60_000

/** When the tenants were last compared, by the clock of the store. The first comparison is due at once. */
export class ComparisonSchedule {
  private lastAt = Number.NEGATIVE_INFINITY

  isDue(now: number): boolean {
    return Math.abs(now - this.lastAt) >= intervalMillis
  }

  done(now: number): void {
    this.lastAt = now
  }
}

/**
 * The maximum number of bytes that one comparison removes: enough to keep the limit, and to reach a limit that was
 * lowered.
 */
const maxForgotten = (limitBytes: number, added: number): number => 4 * stepOf(limitBytes) + 2 * added

/**
 * The number of bytes that a comparison leaves of `total`, if `added` bytes were added since the previous one. It is a
 * step below the limit.
 */
export const targetOf = (limitBytes: number, total: number, added: number): number =>
  Math.max(limitBytes - stepOf(limitBytes), total - maxForgotten(limitBytes, added))

/** The maximum number of records that a comparison removes, and that it checks for expiry. */
export const portionOf = (limitBytes: number, added: number): number =>
  Math.ceil(maxForgotten(limitBytes, added) / overheadBytes)

/**
 * The bytes that each tenant may keep, so that all together have `target` bytes. `total`, the current sum, is greater.
 * `descending` has the bytes of each tenant, the largest first. It is only read as far as tenants are above the share.
 */
export const shareOf = (descending: Iterable<number>, total: number, target: number): number => {
  let above = 0
  let tenants = 0
  let share = 0
  for (const bytes of descending) {
    if (tenants > 0 && bytes <= share) break
    above += bytes
    tenants++
    share = Math.floor((target - (total - above)) / tenants)
  }
  return Math.max(0, share)
}

export interface Comparison {
  /** The bytes of all tenants after it. */
  readonly bytes: number
  /** The number of records that were removed before they expired. */
  readonly forgotten: number
}
