/** Violations of reads, of refusals and of expiry. */

import * as H from "../History.ts"
import type { State } from "../Log.ts"
import {
  address,
  entryOf,
  MutableHistory,
  type Mutation,
  mutation,
  records,
  withOperation,
  withWrite
} from "./MutableHistory.ts"

export const ofReads: ReadonlyArray<Mutation> = [
  mutation(
    "read",
    "an entry is read that an acknowledged write had replaced",
    ({ past }) => past,
    (subject, state) =>
      withOperation(subject, { type: "get", ...address(state) }, { result: { entry: entryOf(state) } })
  ),
  mutation(
    "read",
    "an entry is not found",
    ({ present }) => present,
    (subject, state) => withOperation(subject, { type: "get", ...address(state) }, { result: { entry: null } })
  ),
  mutation(
    "read",
    "an entry is said not to be modified that has been",
    ({ past }) => past,
    (subject, state) => {
      const notModified = state.change.version
      const action = { type: "get", ...address(state), ifNoneMatch: notModified } as const
      return withOperation(subject, action, { result: { notModified } })
    }
  ),
  mutation(
    "read",
    "an entry is read before it is written",
    ({ written }) => written,
    (subject, state) => {
      const { since: before } = subject
      return withOperation(
        subject,
        { type: "get", ...address(state) },
        { result: { entry: entryOf(state) } },
        { before }
      )
    }
  ),
  mutation(
    "read",
    "a precondition fails that holds",
    ({ present }) => present,
    (subject, state) => {
      const { version } = state.change
      const operation = { op: "delete", ...address(state), ifVersion: version } as const
      const action = { type: "write", by: "delete", actor: "mutant", operations: [operation] } as const
      return withOperation(subject, action, { refused: { currentVersion: version } })
    }
  ),
  mutation(
    "read",
    "a refused write is answered with a version that had been replaced",
    ({ past }) => past,
    (subject, state) => {
      const operation = { op: "delete", ...address(state), ifVersion: 1_000_000 } as const
      const action = { type: "write", by: "delete", actor: "mutant", operations: [operation] } as const
      return withOperation(subject, action, { refused: { currentVersion: state.change.version } })
    }
  ),
  mutation(
    "read",
    "a delete finds nothing although an entry is present",
    ({ present }) => present,
    (subject, state) => {
      const operation = { op: "delete", ...address(state) } as const
      const action = { type: "write", by: "delete", actor: "mutant", operations: [operation] } as const
      return withOperation(subject, action, { result: { results: [{ deleted: false }] } })
    }
  ),
  mutation(
    "read",
    "a batch is seen in part by two reads, one after the other",
    subject =>
      subject.written.flatMap(state => {
        const others = state.commit.made.flatMap(({ change }) => {
          const old = subject.log.stateAt(H.addressOf(change), state.position - 1)
          return old?.change.op === "set" && old.expires === undefined ? [old] : []
        })
        const isOther = (old: State) => H.addressOf(old.change) !== H.addressOf(state.change)
        return others.filter(isOther).map(old => ({ state, old }))
      }),
    (subject, { old, state }) => {
      const write = state.commit.write!
      const before = subject.history.events.findIndex(({ time }) => time === write.end)
      if (before === -1) return undefined
      const { wall } = subject.history.events[before]!
      // The second one is inserted first, as it comes before the same event.
      const second = withOperation(
        subject,
        { type: "get", ...address(old) },
        { result: { entry: entryOf(old) } },
        { before, wall }
      )
      const both = withOperation(
        new MutableHistory(second.history, subject.pick),
        { type: "get", ...address(state) },
        { result: { entry: entryOf(state) } },
        { before, wall }
      )
      return { history: both.history, names: second.names }
    }
  ),
  mutation(
    "batch",
    "a state is read that a batch has only in between",
    ({ log }) =>
      log.commits.flatMap(commit =>
        commit.made.flatMap(({ change }) => {
          const shown = log.stateAt(H.addressOf(change), commit.index + 1)
          return shown?.change !== change && change.op === "set"
            ? [{ position: commit.index + 1, change, commit, expires: undefined }]
            : []
        })
      ),
    (subject, state) =>
      withOperation(subject, { type: "get", ...address(state) }, { result: { entry: entryOf(state) } })
  ),
  mutation(
    "expiry",
    "an entry is read after its time",
    ({ log }) =>
      log.commits
        .flatMap(({ made }) => made.flatMap(({ change }) => log.statesOf(H.addressOf(change))))
        .filter(({ expires }) => expires !== undefined && expires.min === expires.max),
    (subject, state) => {
      const before = subject.history.events.findIndex(
        ({ wall }, index) => index >= subject.since && wall > state.expires!.max
      )
      if (before === -1) return undefined
      const { wall } = subject.history.events[before]!
      return withOperation(
        subject,
        { type: "get", ...address(state) },
        { result: { entry: entryOf(state) } },
        { before, wall }
      )
    }
  ),
  mutation(
    "expiry",
    "an entry expires before its time",
    subject => records(subject).filter(({ actor }) => actor === "expiry"),
    (subject, { seq }) => {
      const record = subject.log.records[seq - 1]!
      const set = subject.log.stateAt(H.addressOf(record), subject.log.positionOf(seq) - 1)!
      const { actor } = set.change
      const write = subject.log.commits[set.position - 1]!.write!
      const history = withWrite(subject, write.id, action => ({
        ...action,
        operations: action.operations.map(operation =>
          operation.op === "set" ? { ...operation, ttlMs: 1_000_000 } : operation
        )
      }))
      return actor === "expiry" || (write.outcome.type === "ok" && write.outcome.result.entry !== undefined)
        ? undefined
        : { history, names: [write.id] }
    }
  )
]
