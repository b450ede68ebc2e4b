// Without imports at run time, like `Limits.ts`: the thread that writes histories imports this file.
import type { ActivePosition, ActiveQuery, Activity } from "../SessionEvents.ts"

const bits = { running: 1, waiting: 2, failed: 4 } as const

const names = Object.keys(bits) as ReadonlyArray<keyof Activity>

/** An activity as it is stored: one bit for each member. */
export const bitsOf = (activity: Partial<Activity>): number =>
  names.reduce((sum, name) => (activity[name] === true ? sum | bits[name] : sum), 0)

export const activityOf = (stored: number): Activity => ({
  running: (stored & bits.running) !== 0,
  waiting: (stored & bits.waiting) !== 0,
  failed: (stored & bits.failed) !== 0
})

/** A filter: stored bits match if those in `mask` are `wanted`. */
export interface BitFilter {
  readonly mask: number
  readonly wanted: number
}

export const bitFilter = (filter: Partial<Activity>): BitFilter => ({
  mask: names.reduce((sum, name) => (filter[name] === undefined ? sum : sum | bits[name]), 0),
  wanted: bitsOf(filter)
})

/** The stored bits that match a filter. */
export const matching = (filter: Partial<Activity>): ReadonlyArray<number> => {
  const { mask, wanted } = bitFilter(filter)
  return Array.from({ length: 8 }, (_, stored) => stored).filter(stored => (stored & mask) === wanted)
}

/** The position of a query, and whether it reads the sessions before it. */
export const positionOf = ({ from }: ActiveQuery): ActivePosition & { readonly isBefore: boolean } =>
  "before" in from ? { ...from.before, isBefore: true } : { ...from.after, isBefore: false }
