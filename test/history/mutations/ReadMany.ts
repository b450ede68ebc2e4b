/** Violations of reads of several entries. */
import * as H from "../History.ts"
import type { State } from "../Log.ts"
import { address, entryOf, type MutableHistory, type Mutation, mutation, withOperation } from "./MutableHistory.ts"

/** A read, at the end, of the states that several keys had at one time. */
const read = (
  subject: MutableHistory,
  states: ReadonlyArray<State>,
  entries: ReadonlyArray<H.Entry | null>,
  lastSeq: number
) =>
  withOperation(
    subject,
    { type: "read", addresses: states.map(address) },
    { result: { entries, lastSeq, epoch: subject.epoch } }
  )

export const ofReadMany: ReadonlyArray<Mutation> = [
  mutation(
    "read",
    "a read of several entries shows them of two moments",
    ({ past, present }) =>
      past.flatMap(old =>
        present.flatMap(state => (H.addressOf(state.change) === H.addressOf(old.change) ? [] : [{ old, state }]))
      ),
    (subject, { old, state }) => read(subject, [state, old], [entryOf(state), entryOf(old)], subject.log.end)
  ),
  mutation(
    "read",
    "a read of several entries is without one",
    ({ present }) => present,
    (subject, state) => read(subject, [state], [null], subject.log.end)
  ),
  mutation(
    "read",
    "a read of several entries is older than a write that was acknowledged",
    ({ past }) => past,
    (subject, state) => read(subject, [state], [entryOf(state)], state.commit.last)
  ),
  mutation(
    "read",
    "a read of several entries has an entry of another key",
    ({ present }) => present,
    (subject, state) => {
      const other = { ...entryOf(state), key: `${state.change.key}~` }
      return read(subject, [state], [other], subject.log.end)
    },
    { isForm: true }
  ),
  mutation(
    "batch",
    "a read of several entries has a part of a batch",
    ({ log }) => log.commits.filter(({ made }) => made.length > 1),
    (subject, { first }) => read(subject, [], [], first)
  )
]
