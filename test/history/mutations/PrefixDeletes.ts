/** Violations of deletes of a prefix. */
import {
  address,
  type MutableHistory,
  type Mutation,
  mutation,
  withOperation,
  withResult,
  withWrite
} from "./MutableHistory.ts"

/** The keys that a delete of a prefix selects but does not delete. */
const spared = ({ prefixDeletes }: MutableHistory) =>
  prefixDeletes.flatMap(one => {
    const removed = new Set(one.commit.made.map(({ change }) => change.key))
    const others = one.states.filter(({ change, expires }) => !removed.has(change.key) && expires === undefined)
    return one.commit.made.length < one.prefixDelete.limit && others.length > 0 ? [one] : []
  })

const answered = ({ prefixDeletes }: MutableHistory) =>
  prefixDeletes.flatMap(one => {
    const { outcome } = one.write
    const removed = outcome.type === "ok" ? outcome.result.removed : undefined
    return removed === undefined ? [] : [{ ...one, removed }]
  })

export const ofPrefixDeletes: ReadonlyArray<Mutation> = [
  mutation("batch", "a delete of a prefix leaves an entry", spared, (subject, { prefixDelete, write: { id } }) => ({
    history: withWrite(subject, id, action => ({ ...action, prefixDelete: { ...prefixDelete, prefix: "" } })),
    names: [id]
  })),
  mutation(
    "batch",
    "a delete of a prefix deletes an entry without it",
    ({ prefixDeletes }) => prefixDeletes,
    (subject, { prefixDelete, write: { id } }) => ({
      history: withWrite(subject, id, action => ({
        ...action,
        prefixDelete: { ...prefixDelete, prefix: `${prefixDelete.prefix}~` }
      })),
      names: [id]
    })
  ),
  mutation(
    "batch",
    "a delete of a prefix deletes more than its limit",
    ({ prefixDeletes }) => prefixDeletes.filter(({ commit }) => commit.made.length > 1),
    (subject, { commit, prefixDelete, write: { id } }) => ({
      history: withWrite(subject, id, action => ({
        ...action,
        prefixDelete: { ...prefixDelete, limit: commit.made.length - 1 }
      })),
      names: [id]
    })
  ),
  mutation(
    "outcome",
    "a delete of a prefix is answered with another count",
    answered,
    (subject, { removed, write: { id } }) => ({
      history: withResult(subject, id, { results: [], removed: { ...removed, count: removed.count - 1 } }),
      names: [id]
    })
  ),
  mutation(
    "outcome",
    "a delete of a prefix is answered wrongly whether others are left",
    answered,
    (subject, { removed, write: { id } }) => ({
      history: withResult(subject, id, { results: [], removed: { ...removed, more: !removed.more } }),
      names: [id]
    })
  ),
  mutation(
    "read",
    "a delete of a prefix finds nothing although an entry is present",
    ({ present }) => present,
    (subject, state) => {
      const { key: prefix, namespace } = address(state)
      const prefixDelete = { namespace, prefix, limit: 10 }
      const action = { type: "write", by: "prefix", actor: "mutant", operations: [], prefixDelete } as const
      return withOperation(subject, action, { result: { results: [], removed: { count: 0, more: false } } })
    }
  )
]
