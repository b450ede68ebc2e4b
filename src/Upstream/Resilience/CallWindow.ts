/**
 * A sliding window that counts calls, and marked ones among them, in a bounded number of buckets.
 */

/** The length of a window: `slots` buckets of `slotMillis` each. */
export interface WindowSettings {
  readonly slotMillis: number
  readonly slots: number
}

interface Bucket {
  readonly slot: number
  readonly total: number
  readonly marked: number
}

/** At most as many buckets as the settings have slots, ascending by slot. */
export type CallWindow = ReadonlyArray<Bucket>

/** Numbers of calls: all, and those that are marked, such as failures. */
export interface Counts {
  readonly total: number
  readonly marked: number
}

/** A window without calls. */
export const empty: CallWindow = []

/** A time before the newest bucket is counted in that bucket. */
const slotAt = (window: CallWindow, settings: WindowSettings, now: number): number =>
  Math.max(Math.floor(now / settings.slotMillis), window.at(-1)?.slot ?? Number.NEGATIVE_INFINITY)

/** Adds `more` at `now`, in monotonic milliseconds, and drops buckets that have left the window. */
export const add = (window: CallWindow, settings: WindowSettings, now: number, more: Counts): CallWindow => {
  const slot = slotAt(window, settings, now)
  const kept = window.filter(bucket => bucket.slot > slot - settings.slots && bucket.slot < slot)
  const current = window.at(-1)?.slot === slot ? window.at(-1)! : { slot, total: 0, marked: 0 }
  return [...kept, { slot, total: current.total + more.total, marked: current.marked + more.marked }]
}

/** The sums over the window that ends at `now`. */
export const sum = (window: CallWindow, settings: WindowSettings, now: number): Counts => {
  const slot = slotAt(window, settings, now)
  let total = 0
  let marked = 0
  for (const bucket of window) {
    if (bucket.slot <= slot - settings.slots) continue
    total += bucket.total
    marked += bucket.marked
  }
  return { total, marked }
}
