/**
 * Valid histories: what clients might have seen of a store that does everything right, at random. The checker must pass
 * them all; `Mutations` makes invalid ones of them.
 */
import type * as fc from "fast-check"
import type * as H from "./History.ts"
import { script } from "./model/Script.ts"
import { Simulation } from "./model/Simulation.ts"

/** Valid histories of one log. */
export const histories: fc.Arbitrary<H.History> = script(false).map(one => new Simulation(one).history())

/** Valid histories of a store that was put back to an earlier state, with a new epoch. */
export const restored: fc.Arbitrary<H.History> = script(true).map(one => new Simulation(one).history())
