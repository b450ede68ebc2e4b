/**
 * Answers have the right epoch. A reader that names an epoch gets records of that log, or a failure that the log was
 * replaced. A replaced log is not shown again. A follower is not reset while its log continues.
 */
import type * as H from "../History.ts"
import { noEpoch } from "../Observations.ts"
import { isPoll, type Op } from "../Operations.ts"
import { of, type Violation } from "../Violation.ts"
import { type Epoch, epochOf } from "./Epochs.ts"

/** The connection that a follower has. */
interface Connection {
  readonly opened: number
  /** The epoch that the follower named, or else the first one that it received; `undefined` until then. */
  epoch: string | undefined
}

/** How the epochs of a history follow each other. */
interface Sequence {
  /** The epoch after this one, if it had been seen before a time. */
  readonly successor: (name: string, time: number) => Epoch | undefined
  /** Whether a request was sent after a time whose answer has this epoch. */
  readonly continuesAfter: (name: string, time: number) => boolean
}

const sequence = (ops: ReadonlyArray<Op>, epochs: ReadonlyArray<Epoch>): Sequence => {
  const lastSent = new Map<string, number>()
  for (const op of ops) {
    const answered = epochOf(op)
    if (answered !== undefined) lastSent.set(answered, op.start)
  }
  return {
    successor: (name, time) => {
      const next = epochs[epochs.findIndex(epoch => epoch.name === name) + 1]
      return next !== undefined && next.begun < time ? next : undefined
    },
    continuesAfter: (name, time) => (lastSent.get(name) ?? Number.NEGATIVE_INFINITY) > time
  }
}

/** The epoch in the answer to an operation, or the failure that the log of the named epoch was replaced. */
const checkAnswer = (op: Op, { continuesAfter, successor }: Sequence): ReadonlyArray<Violation> => {
  const answered = epochOf(op)
  const named = isPoll(op) ? op.action.epoch : undefined
  const violations: Array<Violation> = []
  const report = (predicate: string) => violations.push(of("epoch", op, predicate))
  if (answered !== undefined) {
    if (named !== undefined && answered !== named) {
      report(`named the epoch ${named}, and was answered from the epoch ${answered}`)
    }
    const next = successor(answered, op.start)
    if (next !== undefined) {
      report(`was answered from the epoch ${answered}, and ${next.name} had been seen before it was invoked`)
    }
  } else if (named !== undefined && op.outcome.type === "fail" && op.outcome.isGone && continuesAfter(named, op.end)) {
    report(`was answered that the epoch ${named} had ended, and it continues`)
  }
  return violations
}

/** The epochs that followers received, and their resets. */
const checkFollowers = (
  events: ReadonlyArray<H.Event>,
  { continuesAfter, successor }: Sequence
): ReadonlyArray<Violation> => {
  const violations: Array<Violation> = []
  const connections = new Map<string, Connection>()
  const report = (follower: string, predicate: string) =>
    violations.push({ rule: "epoch", message: `follower ${follower} ${predicate}`, operations: [] })
  for (const event of events) {
    if (event.type === "open") {
      connections.set(event.follower, { opened: event.time, epoch: event.epoch })
      continue
    }
    if (event.type !== "seen" && event.type !== "reset") continue
    const connection = connections.get(event.follower)
    if (connection === undefined) continue
    if (event.type === "reset") {
      const { epoch } = connection
      if (epoch !== undefined && continuesAfter(epoch, event.time)) {
        report(event.follower, `was reset, and the epoch ${epoch} continues`)
      }
      continue
    }
    const { epoch = noEpoch, lastSeq } = event
    connection.epoch ??= epoch
    if (connection.epoch !== epoch) {
      report(event.follower, `read the epoch ${connection.epoch}, and got seq ${lastSeq} of the epoch ${epoch}`)
      connection.epoch = epoch
    }
    const next = successor(epoch, connection.opened)
    if (next !== undefined) {
      report(
        event.follower,
        `got seq ${lastSeq} of the epoch ${epoch}, and ${next.name} had been seen before it connected`
      )
    }
  }
  return violations
}

export const check = (
  { events }: H.History,
  ops: ReadonlyArray<Op>,
  epochs: ReadonlyArray<Epoch>
): ReadonlyArray<Violation> => {
  const seen = sequence(ops, epochs)
  return [...ops.flatMap(op => checkAnswer(op, seen)), ...checkFollowers(events, seen)]
}
