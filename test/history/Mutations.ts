/** Makes valid histories invalid, as those of a store that breaks a guarantee. */
import type * as H from "./History.ts"
import { ofAllFollowers } from "./mutations/Followers.ts"
import { MutableHistory, type Mutated, type Mutation, type Which } from "./mutations/MutableHistory.ts"
import { ofAllReads } from "./mutations/Reads.ts"
import { ofLogAndWrites } from "./mutations/Writes.ts"

/** Changes a valid history so that it is not valid any more. */
export const mutations: ReadonlyArray<Mutation> = [...ofLogAndWrites, ...ofAllReads, ...ofAllFollowers]

/** Changes an epoch of the history; `undefined` if it has nothing to change. */
export const mutate = (
  mutation: Mutation,
  history: H.History,
  random: number,
  which: Which = "last"
): Mutated | undefined => {
  let state = random
  const pick = (below: number) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return below === 0 ? 0 : (state >>> 4) % below
  }
  return mutation.apply(new MutableHistory(history, pick, which))
}
