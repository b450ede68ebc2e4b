/**
 * A budget of the bytes of request bodies that are held, over all connections of a server.
 *
 * Each body has a limit of its own, yet many that each stay within it can together fill the memory. So their bytes are
 * counted from where they are received until their request is answered. Above the budget, bodies that are still on
 * their way are refused: first those of which nothing has come for longest, then those that come slowest. So whoever
 * sends slowly keeps nobody out who sends at full speed.
 */
import type { Socket } from "node:net"
import * as ConnectionMetrics from "../ConnectionMetrics.ts"

const receipt = Symbol("causeway/Receipt")

interface Known extends Socket {
  [receipt]?: Receipt
}

/** A body of which something came less than so many milliseconds ago is on its way. */
const recent = 2000

/** What is held of the one body that is received on a connection, or whose request is being answered. */
export class Receipt {
  bytes = 0
  /** Times are those of the last tick before. */
  begunAt = 0
  heardAt = 0
  /** Its place among those that hold something, or -1. */
  place = -1
  /** Refuses the body; there only while it is on its way. */
  refuse: (() => void) | undefined

  constructor(private readonly budget: Intake) {}

  /** Counts bytes of the body that is on its way. It may be refused before this returns, and then holds nothing. */
  add(bytes: number, refuse: () => void): void {
    this.refuse = refuse
    this.budget.add(this, bytes)
  }

  /** The body is whole: its request takes its course. */
  complete(): void {
    this.refuse = undefined
  }

  /** Nothing is held any more. */
  release(): void {
    this.refuse = undefined
    if (this.bytes > 0) this.budget.release(this)
  }
}

/** What counts the body that comes on a connection, if its server keeps count. */
export const receiptOf = (socket: Known | null): Receipt | undefined => socket?.[receipt]

/** See the head of this file. */
export class Intake {
  readonly #holding: Array<Receipt> = []
  #total = 0
  #now = 0

  /** @param limit bytes over all connections; a body that is alone may always be as large as it may be */
  constructor(private readonly limit: number) {}

  /** All bytes that are held. */
  get total(): number {
    return this.#total
  }

  /** Has the bodies counted that come on a connection. */
  open(socket: Known): void {
    socket[receipt] ??= new Receipt(this)
  }

  /** Tells the time, about once a second, in milliseconds of monotonic time. */
  tick(now: number): void {
    this.#now = now
  }

  add(to: Receipt, bytes: number): void {
    if (to.place === -1) {
      to.place = this.#holding.length
      to.begunAt = this.#now
      this.#holding.push(to)
    }
    to.heardAt = this.#now
    to.bytes += bytes
    this.#total += bytes
    if (this.#total > this.limit && this.#holding.length > 1) this.#relieve()
  }

  release(of: Receipt): void {
    this.#total -= of.bytes
    of.bytes = 0
    const last = this.#holding.pop()!
    if (last !== of) {
      this.#holding[of.place] = last
      last.place = of.place
    }
    of.place = -1
  }

  /** Refuses a little more than it must, lest it is done for each piece. */
  #relieve(): void {
    const onTheirWay = this.#holding.filter(({ refuse }) => refuse !== undefined)
    const whole = onTheirWay.reduce((rest, { bytes }) => rest - bytes, this.#total)
    const enough = Math.min(this.limit, Math.max(0.875 * this.limit, (whole + this.limit) / 2))
    for (const held of onTheirWay.sort((a, b) => this.#silence(b) - this.#silence(a) || speed(a) - speed(b))) {
      if (this.#total <= enough) return
      const { refuse } = held
      held.release()
      ConnectionMetrics.refusedBodies.unsafeUpdate(1, [])
      refuse?.()
    }
  }

  /** For how long nothing has come; none where something has come lately. */
  #silence({ heardAt }: Receipt): number {
    const silence = this.#now - heardAt
    return silence < recent ? 0 : silence
  }
}

/** Bytes a millisecond, so rough that bodies of the last second are told apart by their bytes. */
const speed = ({ begunAt, bytes, heardAt }: Receipt): number => bytes / (heardAt - begunAt + 1000)
