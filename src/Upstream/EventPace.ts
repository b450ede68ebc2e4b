/**
 * The pace of large events. What is done with one holds the event loop for milliseconds, so that many of them share
 * iterations of the loop with everything else.
 */
import { Effect } from "effect"
import { PacedWork } from "../base/PacedWork.ts"

/** Events of up to this size are handled at once, which takes less than a millisecond. */
const small = 32 * 1024

/** The size of the events that are handled in one iteration of the event loop, unless a single one is larger. */
const atOnce = 256 * 1024

const pace = new PacedWork(atOnce)

/** Whether events of this size together are large. */
export const isLarge = (size: number): boolean => size > small

/** Waits until it is the turn of large events, whose next step then has to follow at once. */
export const turn = (size: number): Effect.Effect<void> => (isLarge(size) ? pace.turn(size) : Effect.void)
