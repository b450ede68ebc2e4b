/**
 * How many calls, and how many of them marked, there were lately: a sliding window of a bounded number of buckets.
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

/** Never more buckets than the settings have slots; ascending by slot. */
export type CallWindow = ReadonlyArray<Bucket>

/** What a window adds up to. */
export interface Counts {
  readonly total: number
  readonly marked: number
}

/** No calls at all. */
export const empty: CallWindow = []

/** A time before the newest bucket counts into that bucket. */
const slotAt = (window: CallWindow, settings: WindowSettings, now: number): number =>
  Math.max(Math.floor(now / settings.slotMillis), window.at(-1)?.slot ?? Number.NEGATIVE_INFINITY)

/** Counts `more` at the time `now`, in monotonic milliseconds, and forgets what has left the window. */
export const add = (window: CallWindow, settings: WindowSettings, now: number, more: Counts): CallWindow => {
  const slot = slotAt(window, settings, now)
  const kept = window.filter(bucket => bucket.slot > slot - settings.slots && bucket.slot < slot)
  const current = window.at(-1)?.slot === slot ? window.at(-1)! : { slot, total: 0, marked: 0 }
  return [...kept, { slot, total: current.total + more.total, marked: current.marked + more.marked }]
}

/** What happened within the window that ends at `now`. */
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
