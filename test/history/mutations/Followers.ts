/** Violations of followers and polls, and wrong epochs. */
import type * as H from "../History.ts"
import { isPoll } from "../Operations.ts"
import {
  batches,
  beforeEvent,
  type MutableHistory,
  type Mutated,
  type Mutation,
  mutation,
  ofForm,
  ofTwoEpochs,
  once,
  pollAfter,
  retimed,
  seenWith,
  wallEnd,
  withOperation,
  withPoll,
  withResult,
  withSeen,
  writes
} from "./MutableHistory.ts"

const polled = (subject: MutableHistory) =>
  subject.ops
    .filter(isPoll)
    .filter(op => subject.hasEpoch(op))
    .flatMap(({ id, outcome }) =>
      outcome.type === "ok" && outcome.result.changes.length > 1 ? [{ id, result: outcome.result }] : []
    )

type Changed = (changes: ReadonlyArray<H.Change>) => ReadonlyArray<H.Change>

const polls =
  (change: Changed) =>
  (subject: MutableHistory, { id, result }: ReturnType<typeof polled>[number]) =>
    withResult(subject, id, { ...result, changes: change(result.changes) })

const lastSeen = (subject: MutableHistory) =>
  [...new Map(seenWith(0)(subject).map(seen => [seen.follower, seen])).values()].filter(
    ({ changes }) => changes.length > 0
  )

const ofFollowers: ReadonlyArray<Mutation> = [
  mutation("follower", "a follower misses a record", seenWith(2), (subject, seen) =>
    withSeen(subject, seen, { changes: seen.changes.toSpliced(subject.pick(seen.changes.length - 1), 1) })
  ),
  ofForm("follower", "a follower gets records twice", seenWith(1), (subject, seen) => withSeen(subject, seen, {}, {})),
  ofForm("follower", "a follower gets records out of order", seenWith(2), (subject, seen) =>
    withSeen(subject, seen, { changes: seen.changes.toReversed() })
  ),
  mutation("follower", "a follower does not get the last records", lastSeen, (subject, seen) =>
    withSeen(subject, seen)
  ),
  mutation(
    "follower",
    "a poll skips a record",
    polled,
    polls(changes => changes.slice(1))
  ),
  ofForm(
    "follower",
    "a poll gets records out of order",
    polled,
    polls(changes => changes.toReversed())
  ),
  ofForm(
    "follower",
    "a poll gets a record twice",
    polled,
    polls(changes => [changes[0]!, ...changes])
  ),
  mutation("read", "a poll does not see a write that was acknowledged", writes, (subject, { id }) => {
    const after = subject.log.commits.find(({ write }) => write?.id === id)!.first - 1
    return withPoll(subject, after, [], after)
  }),
  mutation("batch", "a poll ends within a batch", batches, (subject, { first, made }) =>
    withPoll(subject, first - 1, [made[0]!.change], first)
  ),
  mutation("epoch", "the log ends before it did, in the same epoch", once, subject =>
    subject.log.end === 0 ? undefined : withPoll(subject, subject.log.end, [], subject.log.end - 1)
  )
]

/** The epoch before the last one, if there are two. */
const earlier = ({ epochs }: MutableHistory): ReadonlyArray<string> => epochs.slice(-2, -1).map(({ name }) => name)

/** A position of the last log. */
const position = ({ log, pick }: MutableHistory): number => log.commits[pick(log.commits.length)]?.last ?? 0

type Untimed<E> = E extends H.Open | H.Seen | H.Reset ? Omit<E, "time" | "wall"> : never

/** Inserts the events of an additional follower, before the end or another event. */
const withFollower = (
  { history }: MutableHistory,
  events: ReadonlyArray<Untimed<H.Event>>,
  before = history.events.length - 1
): Mutated => {
  const at = { time: 0, wall: history.events[before]!.wall }
  const all = history.events.toSpliced(before, 0, ...events.map(event => ({ ...event, ...at }) as H.Event))
  return { history: retimed(history, all), names: ["follower mutant"] }
}

const follower = "mutant"
const open = { type: "open", follower, node: "model", by: "events", after: 0 } as const

/** A follower that names an epoch, and continues in the last one. */
const resumes = (by: H.Open["by"]) => (subject: MutableHistory, named: string) => {
  const { epoch, log } = subject
  const after = position(subject)
  const seen = { type: "seen", follower, changes: log.records.slice(after), lastSeq: log.end, epoch } as const
  return withFollower(subject, [{ ...open, by, after, epoch: named }, seen])
}

/** What followers have received of the epoch before the last one. */
const seenEarlier = (subject: MutableHistory) =>
  earlier(subject).flatMap(name =>
    subject.history.events.flatMap((event, index) =>
      event.type === "seen" && event.epoch === name && event.changes.length > 0 ? [{ name, event, index }] : []
    )
  )

/** The event before which the last poll was invoked. */
const lastPoll = ({ history, ops }: MutableHistory) =>
  ops
    .filter(isPoll)
    .slice(-1)
    .map(({ start }) => history.events.findIndex(({ time }) => time === start))

const ofEpochs: ReadonlyArray<Mutation> = [
  ofTwoEpochs("epoch", "a poll that names another epoch is answered", earlier, (subject, named) => {
    const { epoch, log } = subject
    const after = position(subject)
    const result = { changes: log.records.slice(after), lastSeq: log.end, epoch }
    return withOperation(subject, pollAfter(after, named), { result })
  }),
  ofTwoEpochs("epoch", "an event stream that names another epoch continues", earlier, resumes("events")),
  ofTwoEpochs("epoch", "a WebSocket that names another epoch continues", earlier, resumes("socket")),
  ofTwoEpochs(
    "epoch",
    "an event stream continues in another log without a reset",
    seenEarlier,
    (subject, { event: { lastSeq, wall }, index, name }) => {
      const { epoch, log } = subject
      const before = subject.logOf(name).records.slice(0, lastSeq)
      if (lastSeq > log.end || before.length < lastSeq) return undefined
      const first = { type: "seen", follower, changes: before, lastSeq, epoch: name } as const
      const then = { type: "seen", follower, changes: log.records.slice(lastSeq), lastSeq: log.end, epoch } as const
      const events = subject.history.events
        .toSpliced(-1, 0, { ...then, time: 0, wall: wallEnd(subject.history) })
        .toSpliced(index + 1, 0, { ...open, time: 0, wall }, { ...first, time: 0, wall })
      return { history: retimed(subject.history, events), names: ["follower mutant"] }
    }
  ),
  ofTwoEpochs("epoch", "a poll is answered from a log that was replaced", earlier, (subject, epoch) => {
    const after = subject.logOf(epoch).end
    return withOperation(subject, pollAfter(after, epoch), { result: { changes: [], lastSeq: after, epoch } })
  }),
  ofTwoEpochs("epoch", "a list is of a log that was replaced", earlier, (subject, epoch) => {
    const action = { type: "list", namespace: "plain", prefix: "none" } as const
    const lastSeq = subject.logOf(epoch).end
    return withOperation(subject, action, { result: { items: [], lastSeq, more: false, epoch } })
  }),
  ofTwoEpochs("epoch", "a follower gets records of a log that was replaced", earlier, (subject, epoch) => {
    const { end: lastSeq, records: changes } = subject.logOf(epoch)
    return withFollower(subject, [open, { type: "seen", follower, changes, lastSeq, epoch }])
  }),
  mutation("epoch", "a poll is answered that the log has ended, and it continues", lastPoll, (subject, before) =>
    withOperation(subject, pollAfter(0, subject.epoch), { gone: true }, beforeEvent(subject, before))
  ),
  mutation("epoch", "a follower is reset, and the log continues", lastPoll, (subject, before) => {
    const opened = { ...open, by: "socket", epoch: subject.epoch } as const
    return withFollower(subject, [opened, { type: "reset", follower }, opened], before)
  })
]

export const ofAllFollowers = [...ofFollowers, ...ofEpochs]
