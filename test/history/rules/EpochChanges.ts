/**
 * What readers are told of the epoch: who names one is answered from that log or told that the log is another one, a log
 * that was replaced is not shown again, and nobody is sent back to the start while the log goes on.
 */
import type * as H from "../History.ts"
import { isPoll, type Op } from "../Operations.ts"
import { noEpoch } from "../Sightings.ts"
import { of, type Violation } from "../Violation.ts"
import { type Epoch, epochOf } from "./Epochs.ts"

/** The connection that a follower has. */
interface Connection {
  readonly opened: number
  /** The epoch that was named, or else the first one that came; `undefined` until then. */
  epoch: string | undefined
}

class Judge {
  readonly violations: Array<Violation> = []
  /** By epoch, the last time at which a request was sent whose answer has it. */
  private readonly lastAsked = new Map<string, number>()
  private readonly connections = new Map<string, Connection>()

  constructor(
    private readonly ops: ReadonlyArray<Op>,
    private readonly epochs: ReadonlyArray<Epoch>
  ) {
    for (const op of ops) {
      const told = epochOf(op)
      if (told !== undefined) this.lastAsked.set(told, op.start)
    }
  }

  /** The epoch that had been seen before a time, and comes after this one. */
  private successor(name: string, time: number): Epoch | undefined {
    const index = this.epochs.findIndex(epoch => epoch.name === name)
    const next = this.epochs[index + 1]
    return next !== undefined && next.begun < time ? next : undefined
  }

  private goesOn(name: string, time: number): boolean {
    return (this.lastAsked.get(name) ?? Number.NEGATIVE_INFINITY) > time
  }

  private report(follower: string, predicate: string): void {
    this.violations.push({ rule: "epoch", message: `follower ${follower} ${predicate}`, operations: [] })
  }

  operations(): void {
    for (const op of this.ops) {
      const told = epochOf(op)
      const named = isPoll(op) ? op.action.epoch : undefined
      if (told !== undefined) {
        if (named !== undefined && told !== named) {
          this.violations.push(of("epoch", op, `named the epoch ${named}, and was answered from the epoch ${told}`))
        }
        const next = this.successor(told, op.start)
        if (next !== undefined) {
          this.violations.push(
            of("epoch", op, `was answered from the epoch ${told}, and ${next.name} had been seen before it was invoked`)
          )
        }
      } else if (named !== undefined && op.outcome.type === "fail" && op.outcome.isGone && this.goesOn(named, op.end)) {
        this.violations.push(of("epoch", op, `was told that the epoch ${named} had ended, and it goes on`))
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
      if (epoch !== undefined && this.goesOn(epoch, event.time)) {
        this.report(event.follower, `was told to begin anew, and the epoch ${epoch} goes on`)
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
  const judge = new Judge(ops, epochs)
  judge.operations()
  for (const event of events) judge.follower(event)
  return judge.violations
}
