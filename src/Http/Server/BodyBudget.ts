/**
 * A budget of the bytes of request bodies in memory, and of WebSocket messages that are arriving, over all connections
 * of a server.
 *
 * Bodies that are each within their limit can together fill the memory. Their bytes are counted until their requests
 * are answered. Above the budget, bodies that are still arriving are refused: first those of the holder with the most
 * bytes, which is a tenant with its WebSockets, or all requests together; of these first those that have been silent for
 * the longest time, then the slowest. So slow senders do not block those that send at full speed.
 */

import type { Duplex } from "node:stream"
import * as IndexedArray from "../../base/Intrusive.ts"
import type { MetricTags } from "../../base/Observability/MetricTags.ts"
import * as ConnectionMetrics from "../ConnectionLimits.ts"

const heldBody = Symbol("causeway/HeldBody")
const bodyBudget = Symbol("causeway/BodyBudget")

interface Known extends Duplex {
  [heldBody]?: HeldBody
  [bodyBudget]?: BodyBudget
}

/** A body with a chunk within this number of milliseconds is not silent. */
const recent = 2000

/** The bytes in memory of a body that is arriving, or whose request is being answered. */
export class HeldBody {
  bytes = 0
  /** Times are those of the last tick. */
  begunAt = 0
  lastChunkAt = 0
  /** Its index among the non-empty ones, or -1. */
  index = -1
  /** Refuses the body; `undefined` unless it is arriving. */
  refuse: (() => void) | undefined
  /** The tenant of a WebSocket, "" if it has none; `undefined` for the body of a request. */
  holder: string | undefined

  constructor(private readonly budget: BodyBudget) {}

  /** Counts bytes of an arriving body. It may be refused before this returns, and is then empty. */
  add(bytes: number, refuse: () => void): void {
    this.refuse = refuse
    this.budget.add(this, bytes)
  }

  /** The body is complete and can no longer be refused. */
  complete(): void {
    this.refuse = undefined
  }

  /** The body is no longer in memory. */
  release(): void {
    this.refuse = undefined
    if (this.bytes > 0) this.budget.release(this)
  }
}

/** The body of a connection, if its server has a budget. It is made for the first body: most connections have none. */
export const heldBodyOf = (socket: Known | null): HeldBody | undefined => {
  const budget = socket?.[bodyBudget]
  if (socket === null || budget === undefined) return undefined
  socket[heldBody] ??= new HeldBody(budget)
  return socket[heldBody]
}

/** See the top of this file. */
export class BodyBudget {
  readonly #holding: Array<HeldBody> = []
  #total = 0
  #now = 0

  /** @param limit bytes over all connections; a single body is never refused for it */
  constructor(
    private readonly limit: number,
    private readonly tags: MetricTags
  ) {}

  /** All counted bytes. */
  get total(): number {
    return this.#total
  }

  /** Counts the bodies on a connection. */
  open(socket: Known): void {
    socket[bodyBudget] ??= this
  }

  /** To be called about once a second, with monotonic milliseconds. */
  tick(now: number): void {
    this.#now = now
  }

  add(to: HeldBody, bytes: number): void {
    if (to.index === -1) {
      to.begunAt = this.#now
      IndexedArray.append(this.#holding, to)
    }
    to.lastChunkAt = this.#now
    to.bytes += bytes
    this.#total += bytes
    if (this.#total > this.limit && this.#holding.length > 1) this.#relieve()
  }

  release(of: HeldBody): void {
    this.#total -= of.bytes
    of.bytes = 0
    IndexedArray.remove(this.#holding, of)
  }

  /** Refuses slightly more than necessary, so that this does not run for each chunk. */
  #relieve(): void {
    const arriving = this.#holding.filter(({ refuse }) => refuse !== undefined)
    const bytesNotArriving = arriving.reduce((rest, { bytes }) => rest - bytes, this.#total)
    const enough = Math.min(this.limit, Math.max(0.875 * this.limit, (bytesNotArriving + this.limit) / 2))
    const totals = new Map<string | undefined, number>()
    for (const { bytes, holder } of arriving) totals.set(holder, (totals.get(holder) ?? 0) + bytes)
    const share = ({ holder }: HeldBody): number => totals.get(holder)!
    arriving.sort((a, b) => share(b) - share(a) || this.#silence(b) - this.#silence(a) || speed(a) - speed(b))
    for (const held of arriving) {
      if (this.#total <= enough) return
      const { holder, refuse } = held
      held.release()
      if (holder === undefined) ConnectionMetrics.refusedBodies.unsafeUpdate(1, this.tags)
      refuse?.()
    }
  }

  /** Milliseconds since the last chunk; 0 if that is recent. */
  #silence({ lastChunkAt }: HeldBody): number {
    const silence = this.#now - lastChunkAt
    return silence < recent ? 0 : silence
  }
}

/** Bytes per millisecond. Bodies of the last second are compared by their bytes. */
const speed = ({ begunAt, bytes, lastChunkAt }: HeldBody): number => bytes / (lastChunkAt - begunAt + 1000)
