/** Violations of followers and polls. */
import { isPoll } from "../Operations.ts"
import {
  type MutableHistory,
  type Mutation,
  mutation,
  seenWith,
  withOperation,
  withResult,
  withSeen
} from "./MutableHistory.ts"

const polled = (subject: MutableHistory) =>
  subject.ops
    .filter(isPoll)
    .filter(op => subject.hasEpoch(op))
    .flatMap(op =>
      op.outcome.type === "ok" && op.outcome.result.changes.length > 1 ? [{ op, result: op.outcome.result }] : []
    )

export const ofFollowers: ReadonlyArray<Mutation> = [
  mutation("follower", "a follower misses a record", seenWith(2), (subject, seen) => ({
    history: withSeen(subject, seen, [{ changes: seen.changes.toSpliced(subject.pick(seen.changes.length - 1), 1) }]),
    names: [`follower ${seen.follower}`]
  })),
  mutation(
    "follower",
    "a follower gets records twice",
    seenWith(1),
    (subject, seen) => ({
      history: withSeen(subject, seen, [{}, {}]),
      names: [`follower ${seen.follower}`]
    }),
    { isForm: true }
  ),
  mutation(
    "follower",
    "a follower gets records out of order",
    seenWith(2),
    (subject, seen) => ({
      history: withSeen(subject, seen, [{ changes: seen.changes.toReversed() }]),
      names: [`follower ${seen.follower}`]
    }),
    { isForm: true }
  ),
  mutation(
    "follower",
    "a follower does not get the last records",
    subject => {
      const last = new Map(seenWith(0)(subject).map(seen => [seen.follower, seen]))
      return [...last.values()].filter(({ changes }) => changes.length > 0)
    },
    (subject, seen) => ({ history: withSeen(subject, seen, []), names: [`follower ${seen.follower}`] })
  ),
  mutation("follower", "a poll skips a record", polled, (subject, { op, result }) => ({
    history: withResult(subject, op.id, { ...result, changes: result.changes.slice(1) }),
    names: [op.id]
  })),
  mutation(
    "follower",
    "a poll gets records out of order",
    polled,
    (subject, { op, result }) => ({
      history: withResult(subject, op.id, { ...result, changes: result.changes.toReversed() }),
      names: [op.id]
    }),
    { isForm: true }
  ),
  mutation(
    "follower",
    "a poll gets a record twice",
    polled,
    (subject, { op, result }) => ({
      history: withResult(subject, op.id, { ...result, changes: [result.changes[0]!, ...result.changes] }),
      names: [op.id]
    }),
    { isForm: true }
  ),
  mutation(
    "read",
    "a poll does not see a write that was acknowledged",
    ({ writes }) => writes,
    (subject, { id }) => {
      const after = subject.log.commits.find(({ write }) => write?.id === id)!.first - 1
      const action = { type: "poll", follower: "mutant", after, limit: 100, wait: 0 } as const
      const { epoch } = subject
      return withOperation(subject, action, { result: { changes: [], lastSeq: after, epoch } })
    }
  ),
  mutation(
    "batch",
    "a poll ends within a batch",
    ({ log }) => log.commits.filter(({ made }) => made.length > 1),
    (subject, { first, made }) => {
      const action = { type: "poll", follower: "mutant", after: first - 1, limit: 100, wait: 0 } as const
      const { epoch } = subject
      return withOperation(subject, action, { result: { changes: [made[0]!.change], lastSeq: first, epoch } })
    }
  ),
  mutation(
    "epoch",
    "the log ends before it did, in the same epoch",
    ({ log }) => (log.end === 0 ? [] : [log.end]),
    (subject, after) => {
      const action = { type: "poll", follower: "mutant", after, limit: 100, wait: 0 } as const
      const { epoch } = subject
      return withOperation(subject, action, { result: { changes: [], lastSeq: after - 1, epoch } })
    }
  )
]
