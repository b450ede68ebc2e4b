/** Makes valid histories invalid, as those of a store that breaks a guarantee. */
import type * as H from "./History.ts"
import { ofEpochs } from "./mutations/Epochs.ts"
import { ofFollowers } from "./mutations/Followers.ts"
import { ofLists } from "./mutations/Lists.ts"
import { ofLog } from "./mutations/Log.ts"
import { MutableHistory, type Mutated, type Mutation, type Which } from "./mutations/MutableHistory.ts"
import { ofPrefixDeletes } from "./mutations/PrefixDeletes.ts"
import { ofReadMany } from "./mutations/ReadMany.ts"
import { ofReads } from "./mutations/Reads.ts"
import { ofRetries } from "./mutations/Retries.ts"
import { ofWrites } from "./mutations/Writes.ts"

/** Changes a valid history so that it is not valid any more. */
export const mutations: ReadonlyArray<Mutation> = [
  ...ofLog,
  ...ofWrites,
  ...ofPrefixDeletes,
  ...ofRetries,
  ...ofReads,
  ...ofReadMany,
  ...ofLists,
  ...ofFollowers,
  ...ofEpochs
]

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
