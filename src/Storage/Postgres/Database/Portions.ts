/** Work in portions. Each portion is a transaction that all writers wait for. */
import { Effect } from "effect"
import * as Monotonic from "../../../base/Time/Monotonic.ts"

/** The size of the first portion, and the maximum size. */
const first = 50
const largest = 500

/** The target time of a portion, in milliseconds. It includes the wait for writers. */
const targetMillis = 300

/**
 * Runs work in portions until one is not full. Returns how much was done in all. The work receives the size of a
 * portion and returns how much it has done.
 */
export type Portions = <E>(work: (size: number) => Effect.Effect<number, E>) => Effect.Effect<number, E>

/**
 * The size follows from the time that portions take, as rows may have any size. A portion may be slow only because it
 * has waited for writers. Smaller portions would then remove less than is written, so the size falls below the first
 * one only if a portion fails.
 */
export const make = (): Portions => {
  let size = first
  const halveTo = (least: number): void => {
    size = Math.min(size, Math.max(least, size >> 1))
  }
  return work =>
    Effect.gen(function* () {
      let total = 0
      for (;;) {
        const asked = size
        const startedAt = yield* Monotonic.millis
        const done = yield* Effect.tapError(work(asked), () => Effect.sync(() => halveTo(1)))
        const took = (yield* Monotonic.millis) - startedAt
        total += done
        if (took > targetMillis) halveTo(first)
        if (done < asked) return total
        if (took < targetMillis / 2) size = Math.min(largest, 2 * asked)
      }
    })
}
