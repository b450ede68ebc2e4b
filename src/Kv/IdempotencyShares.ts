/**
 * How tenants share the bytes for what is remembered of writes with idempotency keys: by max-min fairness. Where all have
 * more together than the limit, there is a share above which tenants lose their oldest writes, and those who have less
 * lose nothing.
 *
 * A write that is added counts toward the bytes of its tenant, and no more is done. The tenants are compared once as many
 * bytes were added as a step has. Every backend does as is said here; the PostgreSQL backend has it in its functions.
 */
import { overheadBytes } from "./Idempotency.ts"

/** The parts of the limit of which a step is one. */
export const steps = 512

/** After so many bytes the tenants are compared. */
export const stepOf = (limitBytes: number): number => Math.ceil(limitBytes / steps)

/** Whether tenants are compared, by the bytes of all writes that were ever added, before and after some were. */
export const isStepReached = (limitBytes: number, before: number, after: number): boolean => {
  const step = stepOf(limitBytes)
  return Math.floor(before / step) !== Math.floor(after / step)
}

/**
 * After so many milliseconds tenants are compared with the next write that is added, so that writes that are too old
 * go.
 */
const interval = 60_000

/** When tenants were last compared, by the clock of the store. The first time is due at once. */
export class Comparisons {
  private lastAt = Number.NEGATIVE_INFINITY

  isDue(now: number): boolean {
    return Math.abs(now - this.lastAt) >= interval
  }

  done(now: number): void {
    this.lastAt = now
  }
}

/**
 * The most bytes that one comparison forgets: enough for the limit to be kept, and for a limit that was lowered to be
 * reached.
 */
const maxForgotten = (limitBytes: number, added: number): number => 4 * stepOf(limitBytes) + 2 * added

/** How many bytes a comparison leaves of `total` where so many were added since the one before, but for a step. */
export const targetOf = (limitBytes: number, total: number, added: number): number =>
  Math.max(limitBytes - stepOf(limitBytes), total - maxForgotten(limitBytes, added))

/** The most writes that a comparison forgets, and that it looks at for those that are too old. */
export const portionOf = (limitBytes: number, added: number): number =>
  Math.ceil(maxForgotten(limitBytes, added) / overheadBytes)

/**
 * The bytes that each tenant may keep so that all have `target` together, where they have `total` now, which is more. It
 * is given the bytes of each tenant, the most first, and takes no more of them than are above the share.
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

/** What a comparison has found. */
export interface Found {
  /** The bytes that all tenants have after it. */
  readonly bytes: number
  /** How many writes it has forgotten before they were too old. */
  readonly forgotten: number
}
