/**
 * A budget of the bytes that wait for clients, over all connections of a server.
 *
 * Connections that are each within their own limits can together fill the memory. Above the budget, connections are
 * closed: first those whose clients have read nothing for the longest time, then those with the most bytes.
 */

import type { Duplex } from "node:stream"
import * as IndexedArray from "../../base/Intrusive.ts"
import type { MetricTags } from "../../base/Observability/MetricTags.ts"
import * as ConnectionMetrics from "../ConnectionLimits.ts"

/** The counters of node's TCP handle (`stream_base`): bytes that were passed to libuv, and those that it still has. */
interface Counting {
  readonly _handle?: { readonly bytesWritten: number; readonly writeQueueSize: number } | null
}

const account = Symbol("causeway/Account")

interface Accounted extends Duplex {
  [account]?: Account
}

/**
 * The number of bytes that the operating system has accepted from a connection. Node itself reports only complete
 * writes, and one write can be many megabytes.
 */
export const takenBy = (socket: Duplex & Counting): number => {
  const handle = socket._handle
  return handle === null || handle === undefined ? -socket.writableLength : handle.bytesWritten - handle.writeQueueSize
}

/** A client that has read something within this number of milliseconds counts as reading. */
const recent = 1000

export interface Protocol {
  /** Closes the connection, with a reason for the client. */
  readonly closeSlow: () => void
}

/** The memory that waits for one client. */
export class Account {
  #own = 0
  /** Memory outside of its socket, such as waiting requests. */
  #outside = 0
  #shared: Array<Uint8Array> | undefined
  #sharedBytes = 0
  #taken = 0
  #readAt = 0
  /** The bytes in the kernel's queue at the last check, and the bytes that it had accepted by then. */
  #queued = 0
  #queuedAt = -1
  /** Bytes that were seen to leave the kernel's queue while nothing was added to it. */
  sentByKernel = 0
  /** The position in the order in which clients were last seen to read. */
  order = 0
  /** Its index among the accounts with bytes, or -1. */
  index = -1
  /** The connection is being closed: nothing is counted for it. */
  #isClosed = false
  /**
   * What closes the connection by its protocol. Absent for most answers over HTTP, which can only be cut off once they
   * have started.
   */
  protocol: Protocol | undefined

  constructor(
    readonly socket: Duplex,
    private readonly budget: UnsentBudget
  ) {}

  /** All bytes for this client, including those that it shares with others. */
  get bytes(): number {
    return this.#own + this.#sharedBytes
  }

  /** Requests a check of the kernel's queue, because it is doubtful whether the client reads. */
  watch(): void {
    if (!this.#isClosed) this.budget.watched.add(this)
  }

  /** Ends the protocol: the client may take as long to read the rest as that of any answer. */
  endProtocol(): void {
    if (this.protocol === undefined) return
    this.protocol = undefined
    this.noteRead(this.budget.now)
  }

  /** Called with the bytes in the kernel's queue. While nothing is added, their number can only decrease. */
  onKernelQueue(queued: number): void {
    const taken = takenBy(this.socket)
    if (taken === this.#queuedAt && queued < this.#queued) this.sentByKernel += this.#queued - queued
    this.#queued = queued
    this.#queuedAt = taken
  }

  /** See {@link UnsentBudget.admits}. */
  admits(bytes: number): boolean {
    return this.budget.admits(bytes)
  }

  /** When {@link checkRead} last saw that the client had read something, or had nothing to read. */
  get readAt(): number {
    return this.#readAt
  }

  /** Checks whether the client has read something since the last check, or has nothing to read. */
  checkRead(now: number): void {
    const hasUnsent = this.socket.writableLength > 0 || this.#sharedBytes > 0
    if (!hasUnsent || takenBy(this.socket) + this.sentByKernel !== this.#taken) this.noteRead(now)
  }

  /** Records that the client has read just now. */
  noteRead(now: number): void {
    this.#taken = takenBy(this.socket) + this.sentByKernel
    this.#readAt = now
    this.order = this.budget.nextOrder()
  }

  /**
   * Counts again. To be called after a write that the system did not accept completely, and when part of it was sent.
   */
  recount(): void {
    if (this.#isClosed) return
    const own = this.#outside + Math.max(0, this.socket.writableLength - this.#sharedBytes)
    const difference = own - this.#own
    if (difference === 0) return
    this.#own = own
    this.budget.add(this, difference)
  }

  /** Counts memory for this client outside of its socket; a negative number of bytes subtracts it. */
  hold(bytes: number): void {
    this.#outside += bytes
    this.recount()
  }

  /** Counts bytes that are sent to others too, once for all of them. */
  share(bytes: Uint8Array): void {
    if (this.#isClosed) return
    if (this.#shared === undefined) this.#shared = [bytes]
    else this.#shared.push(bytes)
    this.#sharedBytes += bytes.length
    // First subtract the bytes that are no longer its own.
    this.recount()
    this.budget.share(this, bytes)
  }

  /** Undoes {@link share}. */
  unshare(bytes: Uint8Array): void {
    const place = this.#shared?.indexOf(bytes) ?? -1
    if (place === -1) return
    this.#shared!.splice(place, 1)
    this.#sharedBytes -= bytes.length
    this.budget.unshare(this, bytes)
    this.recount()
  }

  /** Undoes {@link share} for bytes that were sent, oldest first. */
  unshareSent(): void {
    const waiting = this.socket.writableLength
    while (this.#shared !== undefined && this.#shared.length > 0) {
      const oldest = this.#shared[0]!
      if (this.#sharedBytes - oldest.length < waiting) break
      this.unshare(oldest)
    }
    this.recount()
  }

  /** Releases everything permanently. Returns the number of bytes. */
  close(): number {
    if (this.#isClosed) return 0
    const { bytes } = this
    this.#isClosed = true
    this.protocol = undefined
    this.#sharedBytes = 0
    for (const shared of this.#shared?.splice(0) ?? []) this.budget.unshare(this, shared)
    const own = this.#own
    this.#own = 0
    this.budget.add(this, -own)
    return bytes
  }
}

/** The account of a connection, if its server has a budget. */
export const accountOf = (socket: Accounted | null): Account | undefined => socket?.[account]

/** To be called after a write on a connection. */
export const noteWritten = (socket: Accounted | null): void => {
  if (socket !== null && socket.writableLength > 0) socket[account]?.recount()
}

/** See the top of this file. */
export class UnsentBudget {
  readonly #holding: Array<Account> = []
  readonly #shared = new Map<Uint8Array, number>()
  /** Connections that are being closed. */
  readonly #ending = new Set<Account>()
  /** Connections whose kernel queues are to be checked. */
  readonly watched = new Set<Account>()
  #counted = 0
  /** The bytes of connections that are being closed. */
  #leaving = 0
  #now = 0
  #order = 0
  #isRelieving = false

  /** @param limit bytes over all connections */
  constructor(
    private readonly limit: number,
    private readonly tags: MetricTags
  ) {}

  /** All waiting bytes; shared ones count once. */
  get total(): number {
    return this.#counted + this.#leaving
  }

  /** The time of the last tick. */
  get now(): number {
    return this.#now
  }

  nextOrder(): number {
    return ++this.#order
  }

  /** Opens the account of a connection. It must be closed with the connection. */
  open(socket: Accounted): Account {
    const known = socket[account]
    if (known !== undefined) return known
    const opened = new Account(socket, this)
    socket[account] = opened
    return opened
  }

  /**
   * Whether an answer of `bytes` bytes may be written. Closed connections keep their memory until this iteration of
   * the event loop ends, in which many requests can arrive.
   */
  admits(bytes: number): boolean {
    return this.total + bytes <= 1.5 * this.limit
  }

  /**
   * Checks which clients read, and closes HTTP connections whose clients have read nothing for `readTimeout`. To be
   * called about once a second, with monotonic milliseconds. Returns the number of closed connections.
   */
  tick(now: number, readTimeout: number): number {
    this.#now = now
    let cut = 0
    for (const held of [...this.#holding]) {
      held.recount()
      held.checkRead(now)
      if (held.index === -1 || held.protocol !== undefined || now - held.readAt < readTimeout) continue
      this.#cut(held)
      ConnectionMetrics.countCut("not_reading", this.tags)
      cut++
    }
    return cut
  }

  /** Connections whose clients may not read, since the last call. */
  possiblyStalled(): ReadonlyArray<Account> {
    const possiblyStalled = [...this.watched]
    this.watched.clear()
    for (const held of this.#holding) if (this.#now - held.readAt >= recent) possiblyStalled.push(held)
    return possiblyStalled
  }

  /** Counts bytes of a connection alone; a negative number subtracts them. */
  add(of: Account, bytes: number): void {
    this.#counted += bytes
    this.#enter(of)
    if (bytes > 0) this.#check()
  }

  share(of: Account, bytes: Uint8Array): void {
    const holders = this.#shared.get(bytes) ?? 0
    this.#shared.set(bytes, holders + 1)
    this.#enter(of)
    if (holders > 0) return
    this.#counted += bytes.length
    this.#check()
  }

  unshare(of: Account, bytes: Uint8Array): void {
    const holders = this.#shared.get(bytes) ?? 0
    if (holders > 1) this.#shared.set(bytes, holders - 1)
    else if (this.#shared.delete(bytes)) this.#counted -= bytes.length
    this.#enter(of)
  }

  /** Adds a connection to those with bytes, or removes it. */
  #enter(of: Account): void {
    const holds = of.bytes > 0
    if (holds === of.index >= 0) return
    if (holds) {
      IndexedArray.append(this.#holding, of)
      of.noteRead(this.#now)
    } else IndexedArray.remove(this.#holding, of)
  }

  #check(): void {
    if (this.#isRelieving || this.#counted <= this.limit) return
    this.#isRelieving = true
    this.#relieve()
    this.#isRelieving = false
  }

  /** Closes connections until three quarters of the budget are in use, so that this does not run for each write. */
  #relieve(): void {
    // Those that have been closing since the last time must free their memory now.
    for (const { socket } of this.#ending) socket.destroy()
    for (const held of this.#holding) held.checkRead(this.#now)
    const isStalled = (held: Account): boolean => this.#now - held.readAt >= recent
    const inOrder = [...this.#holding].sort((a, b) => {
      if (isStalled(a) !== isStalled(b)) return isStalled(a) ? -1 : 1
      return (isStalled(a) ? 0 : b.bytes - a.bytes) || a.order - b.order
    })
    for (const held of inOrder) {
      if (this.#counted <= 0.75 * this.limit) return
      ConnectionMetrics.countCut("unsent_bytes", this.tags)
      this.#cut(held)
    }
  }

  #cut(held: Account): void {
    const { protocol, socket } = held
    const bytes = held.close()
    this.#leaving += bytes
    this.#ending.add(held)
    socket.once("close", () => {
      if (this.#ending.delete(held)) this.#leaving -= bytes
    })
    if (protocol === undefined) socket.destroy()
    else protocol.closeSlow()
  }
}
