/** Makes valid histories invalid: what a store would show that breaks one of its promises. */
import type * as H from "./History.ts"
import { ofFollowers } from "./mutations/Followers.ts"
import { ofLists } from "./mutations/Lists.ts"
import { ofLog } from "./mutations/Log.ts"
import { ofReads } from "./mutations/Reads.ts"
import { type Mutated, type Mutation, Subject } from "./mutations/Subject.ts"
import { ofWrites } from "./mutations/Writes.ts"

/** Changes a valid history so that it is not valid any more. */
export const mutations: ReadonlyArray<Mutation> = [...ofLog, ...ofWrites, ...ofReads, ...ofLists, ...ofFollowers]

export const mutate = (mutation: Mutation, history: H.History, random: number): Mutated | undefined => {
  let state = random
  const pick = (below: number) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return below === 0 ? 0 : (state >>> 4) % below
  }
  return mutation.apply(new Subject(history, pick))
}
