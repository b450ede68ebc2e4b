/** Violations of writes: their results, their wholeness, their order. */
import * as H from "../History.ts"
import {
  type Mutation,
  mutation,
  retimed,
  withChanges,
  withEvent,
  withOperation,
  withResult,
  withWrite
} from "./MutableHistory.ts"

export const ofWrites: ReadonlyArray<Mutation> = [
  mutation(
    "outcome",
    "an acknowledged write is lost",
    () => [0],
    subject => {
      const operation = { op: "set", namespace: "plain", key: "k", value: 1 } as const
      const action = { type: "write", by: "put", actor: "mutant", operations: [operation] } as const
      return withOperation(subject, action, { result: { results: [{ version: 1 }] } })
    }
  ),
  mutation(
    "outcome",
    "the answer to a write has another result than the log",
    ({ writes }) => writes,
    (subject, { id, outcome }) => {
      if (outcome.type !== "ok") return undefined
      const { removed } = outcome.result
      const results = outcome.result.results.map(
        (result): H.OperationResult =>
          "version" in result ? { version: result.version + 1 } : { deleted: !result.deleted }
      )
      const counted = removed === undefined ? {} : { removed: { ...removed, count: removed.count + 1 } }
      return { history: withResult(subject, id, { results, ...counted }), names: [id] }
    }
  ),
  mutation(
    "outcome",
    "a write that was refused is in the log",
    ({ writes }) => writes,
    (subject, { id }) => ({
      history: withEvent(subject, id, event =>
        event.type === "ok" ? { type: "fail", id, reason: "mutant", time: event.time, wall: event.wall } : event
      ),
      names: [id]
    })
  ),
  mutation(
    "batch",
    "a part of a batch is missing",
    ({ writes }) => writes.filter(({ action }) => action.prefixDelete === undefined),
    (subject, { id }) => ({
      history: withWrite(subject, id, action => ({
        ...action,
        operations: [...action.operations, { op: "set", namespace: "plain", key: "mutant", value: 1 }]
      })),
      names: [id]
    })
  ),
  mutation(
    "batch",
    "a write has records that it did not ask for",
    ({ log }) =>
      log.commits.flatMap(({ made, write }) =>
        made.length > 1 &&
        write?.action.prefixDelete === undefined &&
        made.at(-1)!.operation === write?.action.operations.at(-1)
          ? [write!]
          : []
      ),
    (subject, { id }) => ({
      history: withWrite(subject, id, action => ({ ...action, operations: action.operations.slice(0, -1) })),
      names: [id]
    })
  ),
  mutation(
    "batch",
    "a write is applied twice",
    ({ present }) =>
      present.filter(({ commit }) => commit.write?.action.operations.length === 1 && commit.write.tries.length === 1),
    (subject, { change, commit }) => {
      const again = { ...change, seq: subject.log.end + 1, version: change.version + 1 }
      const { epoch } = subject
      const action = { type: "poll", follower: "mutant", after: again.seq - 1, limit: 9, wait: 0 } as const
      const { history } = withOperation(subject, action, { result: { changes: [again], lastSeq: again.seq, epoch } })
      return again.seq - 1 === change.seq ? undefined : { history, names: [commit.write!.id] }
    }
  ),
  mutation(
    "order",
    "a write is seen before it is invoked",
    ({ writes }) => writes,
    (subject, { id }) => {
      const { events } = subject.history
      const isOwn = (event: H.Event) => (event.type === "invoke" || event.type === "ok") && event.id === id
      const last = events.length - 1
      const moved = [...events.slice(0, last).filter(event => !isOwn(event)), ...events.filter(isOwn), events[last]!]
      return { history: retimed(subject.history, moved), names: [id] }
    }
  ),
  mutation(
    "order",
    "two writes stand in the log the wrong way round",
    ({ log: { commits } }) =>
      commits.flatMap((first, index) => {
        const second = commits[index + 1]
        const areSingle = first.made.length === 1 && second?.made.length === 1
        const isOther = areSingle && H.addressOf(first.made[0]!.change) !== H.addressOf(second.made[0]!.change)
        const isOnce = first.write?.tries.length === 1 && second?.write?.tries.length === 1
        const isOrdered = (first.write?.end ?? Number.POSITIVE_INFINITY) < (second?.write?.start ?? 0)
        return isOther && isOnce && isOrdered ? [{ first, second }] : []
      }),
    (subject, { first, second }) => {
      const a = first.made[0]!.change
      const b = second.made[0]!.change
      const swapped = new Map([
        [a.seq, { ...b, seq: a.seq, timestamp: a.timestamp }],
        [b.seq, { ...a, seq: b.seq, timestamp: b.timestamp }]
      ])
      const history = withChanges(subject, changes => changes.map(change => swapped.get(change.seq) ?? change))
      return { history, names: [first.write!.id, second.write!.id] }
    }
  )
]
