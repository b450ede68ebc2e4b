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

class EpochCheck {
  readonly violations: Array<Violation> = []
  /** By epoch, when the last request was sent whose answer has this epoch. */
  private readonly lastSent = new Map<string, number>()
  private readonly connections = new Map<string, Connection>()

  constructor(
    private readonly ops: ReadonlyArray<Op>,
    private readonly epochs: ReadonlyArray<Epoch>
  ) {
    for (const op of ops) {
      const answered = epochOf(op)
      if (answered !== undefined) this.lastSent.set(answered, op.start)
    }
  }

  /** The epoch after this one, if it had been seen before a time. */
  private successor(name: string, time: number): Epoch | undefined {
    const index = this.epochs.findIndex(epoch => epoch.name === name)
    const next = this.epochs[index + 1]
    return next !== undefined && next.begun < time ? next : undefined
  }

  private continuesAfter(name: string, time: number): boolean {
    return (this.lastSent.get(name) ?? Number.NEGATIVE_INFINITY) > time
  }

  private report(follower: string, predicate: string): void {
    this.violations.push({ rule: "epoch", message: `follower ${follower} ${predicate}`, operations: [] })
  }

  operations(): void {
    for (const op of this.ops) {
      const answered = epochOf(op)
      const named = isPoll(op) ? op.action.epoch : undefined
      if (answered !== undefined) {
        if (named !== undefined && answered !== named) {
          this.violations.push(of("epoch", op, `named the epoch ${named}, and was answered from the epoch ${answered}`))
        }
        const next = this.successor(answered, op.start)
        if (next !== undefined) {
          this.violations.push(
            of(
              "epoch",
              op,
              `was answered from the epoch ${answered}, and ${next.name} had been seen before it was invoked`
            )
          )
        }
      } else if (
        named !== undefined &&
        op.outcome.type === "fail" &&
        op.outcome.isGone &&
        this.continuesAfter(named, op.end)
      ) {
        this.violations.push(of("epoch", op, `was answered that the epoch ${named} had ended, and it continues`))
      }
    }
  }

  follower(event: H.Event): void {
    if (event.type === "open") {
      this.connections.set(event.follower, { opened: event.time, epoch: event.epoch })
      return
    }
    if (event.type !== "seen" && event.type !== "reset") return
    const connection = this.connections.get(event.follower)
    if (connection === undefined) return
    if (event.type === "reset") {
      const { epoch } = connection
      if (epoch !== undefined && this.continuesAfter(epoch, event.time)) {
        this.report(event.follower, `was reset, and the epoch ${epoch} continues`)
      }
      return
    }
    const { epoch = noEpoch, lastSeq } = event
    connection.epoch ??= epoch
    if (connection.epoch !== epoch) {
      this.report(event.follower, `read the epoch ${connection.epoch}, and got seq ${lastSeq} of the epoch ${epoch}`)
      connection.epoch = epoch
    }
    const next = this.successor(epoch, connection.opened)
    if (next !== undefined) {
      this.report(
        event.follower,
        `got seq ${lastSeq} of the epoch ${epoch}, and ${next.name} had been seen before it connected`
      )
    }
  }
}

export const check = (
  { events }: H.History,
  ops: ReadonlyArray<Op>,
  epochs: ReadonlyArray<Epoch>
): ReadonlyArray<Violation> => {
  const epochCheck = new EpochCheck(ops, epochs)
  epochCheck.operations()
  for (const event of events) epochCheck.follower(event)
  return epochCheck.violations
}
