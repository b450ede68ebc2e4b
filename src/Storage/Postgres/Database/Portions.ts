/**
 * Work by portions, each of which is a transaction that all writers wait for.
 */
import { Effect } from "effect"
import * as Monotonic from "../../../Monotonic.ts"

/** The size of the first portion, and of the largest. */
const first = 50
const largest = 500

/** Milliseconds that a portion should take at most, the time included that it waits for writers. */
const wanted = 300

/**
 * Runs work by portions until one is not full, and returns how much was done in all. It is given the size of a portion
 * and returns how much there was.
 */
export type Portions = <E>(work: (size: number) => Effect.Effect<number, E>) => Effect.Effect<number, E>

/**
 * The size follows from how long portions take, as rows may have any size. A portion that was slow only because it waited
 * for writers is no reason for smaller ones, by which less would be removed than is written: the size falls below the
 * first one only where a portion fails.
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
        if (took > wanted) halveTo(first)
        if (done < asked) return total
        if (took < wanted / 2) size = Math.min(largest, 2 * asked)
      }
    })
}
