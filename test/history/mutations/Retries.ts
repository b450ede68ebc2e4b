/** Violations of writes that are repeated with their `Idempotency-Key`. */
import type * as H from "../History.ts"
import { MutableHistory, type Mutation, mutation, withOperation } from "./MutableHistory.ts"

export const ofRetries: ReadonlyArray<Mutation> = [
  mutation(
    "retry",
    "the answer to a repetition is another one",
    ({ keyed }) => keyed,
    (subject, { action, id, outcome }) => {
      if (outcome.type !== "ok") return undefined
      const { removed, results } = outcome.result
      const other: H.WriteResult =
        removed === undefined
          ? {
              results: results.map(one => ("version" in one ? { version: one.version + 1 } : { deleted: !one.deleted }))
            }
          : { results, removed: { ...removed, count: removed.count + 1 } }
      return { ...withOperation(subject, action, { result: other }), names: [id] }
    }
  ),
  mutation(
    "retry",
    "a repetition is refused by what the write itself has changed",
    ({ keyed }) => keyed,
    (subject, { action }) => withOperation(subject, action, { refused: {} })
  ),
  mutation(
    "retry",
    "a repeated write is applied twice",
    ({ keyed, log, present }) => {
      const singles = new Set(keyed.filter(({ action }) => action.operations.length === 1))
      return present.filter(({ change, commit: { write } }) => {
        return write !== undefined && singles.has(write) && change.seq !== log.end
      })
    },
    (subject, { change, commit }) => {
      const { action, id, outcome } = commit.write!
      if (outcome.type !== "ok") return undefined
      const repeated = new MutableHistory(
        withOperation(subject, action, { result: outcome.result }).history,
        subject.pick
      )
      const again = { ...change, seq: subject.log.end + 1, version: change.version + 1 }
      const { epoch } = subject
      const poll = { type: "poll", follower: "mutant", after: again.seq - 1, limit: 9, wait: 0 } as const
      const seen = { changes: [again], lastSeq: again.seq, epoch }
      return { ...withOperation(repeated, poll, { result: seen }), names: [id] }
    }
  ),
  mutation(
    "outcome",
    "a write is lost although its repetition was acknowledged",
    () => [0],
    subject => {
      const operation = { op: "set", namespace: "plain", key: "k", value: 1 } as const
      const action: H.WriteAction = {
        ...{ type: "write", by: "put", actor: "mutant", operations: [operation] },
        idempotencyKey: "mutant"
      }
      const first = withOperation(subject, action, { refused: { currentVersion: null } })
      const repeated = new MutableHistory(first.history, subject.pick)
      return { ...withOperation(repeated, action, { result: { results: [{ version: 1 }] } }), names: first.names }
    }
  )
]
