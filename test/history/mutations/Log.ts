/** Violations of the log by itself. */
import * as H from "../History.ts"
import {
  idOf,
  type Mutation,
  mutation,
  records,
  seenWith,
  withChanges,
  withRecord,
  withSeen,
  withWrite
} from "./MutableHistory.ts"

export const ofLog: ReadonlyArray<Mutation> = [
  mutation("log", "a record is missing to all", records, (subject, { seq }) =>
    seq === subject.log.end
      ? undefined
      : {
          history: withChanges(subject, changes => changes.filter(change => change.seq !== seq)),
          names: [`seq ${seq}`]
        }
  ),
  mutation("log", "time falls", records, (subject, { seq, timestamp }) => {
    const previous = subject.log.records[seq - 2]
    if (previous === undefined) return undefined
    const history = withRecord(subject, seq, { timestamp: Math.min(timestamp, previous.timestamp) - 1 })
    return { history, names: [`seq ${seq}`] }
  }),
  mutation("log", "a record is of no known actor", records, (subject, { seq }) => ({
    history: withRecord(subject, seq, { actor: "nobody" }),
    names: ["nobody"]
  })),
  mutation(
    "log",
    "a record has another value than was written",
    subject => records(subject).filter(({ op }) => op === "set"),
    (subject, { seq }) => ({ history: withRecord(subject, seq, { value: "mutant" }), names: [idOf(subject, seq)] })
  ),
  mutation("log", "a follower sees another record than the others", seenWith(1), (subject, seen) => ({
    history: withSeen(subject, seen, [{ changes: seen.changes.with(0, { ...seen.changes[0]!, value: "mutant" }) }]),
    names: [`follower ${seen.follower}`]
  })),
  mutation("chain", "a version is skipped", records, (subject, { seq, version }) => ({
    history: withRecord(subject, seq, { version: version + 1 }),
    names: [`seq ${seq}`]
  })),
  mutation(
    "chain",
    "a precondition that names another version holds",
    subject => subject.writes.filter(({ action }) => action.operations.length === 1),
    (subject, { action, id }) => {
      const [operation] = action.operations as [H.Operation]
      const position = subject.log.commits.find(({ write }) => write?.id === id)!.index
      const state = subject.log.stateAt(H.addressOf(operation), position)
      const wrong = state?.change.op === "set" ? subject.pick(state.change.version) : 1 + subject.pick(9)
      const history = withWrite(subject, id, action => ({
        ...action,
        operations: [{ ...operation, ifVersion: wrong }]
      }))
      return { history, names: [id] }
    }
  )
]
