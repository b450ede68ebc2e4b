/** Wrong epochs in answers, in histories with two epochs. */
import type * as H from "../History.ts"
import { isPoll } from "../Operations.ts"
import {
  type MutableHistory,
  type Mutated,
  type Mutation,
  mutation,
  retimed,
  wallEnd,
  withOperation
} from "./MutableHistory.ts"

/** The epoch before the last one, if there are two. */
const earlier = ({ epochs }: MutableHistory): ReadonlyArray<string> => epochs.slice(-2, -1).map(({ name }) => name)

/** A position of the last log. */
const position = ({ log, pick }: MutableHistory): number => log.commits[pick(log.commits.length)]?.last ?? 0

/** Inserts the events of an additional follower, before the end or another event. */
const withFollower = (
  { history }: MutableHistory,
  events: ReadonlyArray<Omit<H.Open, "time" | "wall"> | Omit<H.Seen, "time" | "wall"> | Omit<H.Reset, "time" | "wall">>,
  before = history.events.length - 1
): H.History => {
  const { wall } = history.events[before]!
  return retimed(history, history.events.toSpliced(before, 0, ...events.map(event => ({ ...event, time: 0, wall }))))
}

const names = ["follower mutant"]

const resumes = (by: H.Open["by"]) => (subject: MutableHistory, named: string) => {
  const { epoch, log } = subject
  const after = position(subject)
  const open = { type: "open", follower: "mutant", node: "model", by, after, epoch: named } as const
  const seen = { type: "seen", follower: "mutant", changes: log.records.slice(after), lastSeq: log.end, epoch } as const
  return { history: withFollower(subject, [open, seen]), names }
}

const ofTwo = { isOfEpochs: true }

export const ofEpochs: ReadonlyArray<Mutation> = [
  mutation(
    "epoch",
    "a poll that names another epoch is answered",
    earlier,
    (subject, named) => {
      const { epoch, log } = subject
      const after = position(subject)
      const action = { type: "poll", follower: "mutant", after, epoch: named, limit: 100_000, wait: 0 } as const
      return withOperation(subject, action, { result: { changes: log.records.slice(after), lastSeq: log.end, epoch } })
    },
    ofTwo
  ),
  mutation("epoch", "an event stream that names another epoch continues", earlier, resumes("events"), ofTwo),
  mutation("epoch", "a WebSocket that names another epoch continues", earlier, resumes("socket"), ofTwo),
  mutation(
    "epoch",
    "an event stream continues in another log without a reset",
    subject =>
      earlier(subject).flatMap(name =>
        subject.history.events.flatMap((event, index) =>
          event.type === "seen" && event.epoch === name && event.changes.length > 0 ? [{ name, event, index }] : []
        )
      ),
    (subject, { event: { lastSeq, wall }, index, name }): Mutated | undefined => {
      const { epoch, log } = subject
      if (lastSeq > log.end) return undefined
      const follower = "mutant"
      const before = subject.logOf(name).records.slice(0, lastSeq)
      if (before.length < lastSeq) return undefined
      const open = { type: "open", follower, node: "model", by: "events", after: 0 } as const
      const first = { type: "seen", follower, changes: before, lastSeq, epoch: name } as const
      const then = { type: "seen", follower, changes: log.records.slice(lastSeq), lastSeq: log.end, epoch } as const
      const at = { time: 0, wall }
      const last = { ...then, time: 0, wall: wallEnd(subject.history) }
      const events = subject.history.events
        .toSpliced(-1, 0, last)
        .toSpliced(index + 1, 0, { ...open, ...at }, { ...first, ...at })
      return { history: retimed(subject.history, events), names }
    },
    ofTwo
  ),
  mutation(
    "epoch",
    "a poll is answered from a log that was replaced",
    earlier,
    (subject, epoch) => {
      const after = subject.logOf(epoch).end
      const action = { type: "poll", follower: "mutant", after, epoch, limit: 100, wait: 0 } as const
      return withOperation(subject, action, { result: { changes: [], lastSeq: after, epoch } })
    },
    ofTwo
  ),
  mutation(
    "epoch",
    "a list is of a log that was replaced",
    earlier,
    (subject, epoch) => {
      const action = { type: "list", namespace: "plain", prefix: "none" } as const
      const lastSeq = subject.logOf(epoch).end
      return withOperation(subject, action, { result: { items: [], lastSeq, more: false, epoch } })
    },
    ofTwo
  ),
  mutation(
    "epoch",
    "a follower gets records of a log that was replaced",
    earlier,
    (subject, epoch) => {
      const { end: lastSeq, records: changes } = subject.logOf(epoch)
      const open = { type: "open", follower: "mutant", node: "model", by: "events", after: 0 } as const
      const seen = { type: "seen", follower: "mutant", changes, lastSeq, epoch } as const
      return { history: withFollower(subject, [open, seen]), names }
    },
    ofTwo
  ),
  mutation(
    "epoch",
    "a poll is answered that the log has ended, and it continues",
    ({ ops }) => ops.filter(isPoll).slice(-1),
    (subject, { start }) => {
      const { epoch, history } = subject
      const before = history.events.findIndex(({ time }) => time === start)
      const action = { type: "poll", follower: "mutant", after: 0, epoch, limit: 100, wait: 0 } as const
      return withOperation(subject, action, { gone: true }, { before, wall: history.events[before]!.wall })
    }
  ),
  mutation(
    "epoch",
    "a follower is reset, and the log continues",
    ({ ops }) => ops.filter(isPoll).slice(-1),
    (subject, { start }) => {
      const { epoch, history } = subject
      const before = history.events.findIndex(({ time }) => time === start)
      const open = { type: "open", follower: "mutant", node: "model", by: "socket", after: 0, epoch } as const
      const reset = { type: "reset", follower: "mutant" } as const
      const again = { ...open, follower: "mutant" }
      return { history: withFollower(subject, [open, reset, again], before), names }
    }
  )
]
