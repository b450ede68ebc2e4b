/**
 * A budget of the bytes that wait for clients, over all connections of a server.
 *
 * Connections that each stay within their own limits can together fill the memory. Above the budget, connections are
 * ended: first those whose clients have read nothing for longest, then those that hold most.
 */
import type { Duplex } from "node:stream"
import type { MetricTags } from "../../MetricTags.ts"
import * as ConnectionMetrics from "../ConnectionMetrics.ts"
import * as IndexedArray from "./IndexedArray.ts"

/** The counters of node's TCP handle (`stream_base`): bytes that libuv was given, and those of them that it still has. */
interface Counting {
  readonly _handle?: { readonly bytesWritten: number; readonly writeQueueSize: number } | null
}

const account = Symbol("causeway/Account")

interface Accounted extends Duplex {
  [account]?: Account
}

/**
 * How many bytes the operating system has taken from a connection so far. Node itself tells only when a whole write has
 * left, and one write can be many megabytes.
 */
export const takenBy = (socket: Duplex & Counting): number => {
  const handle = socket._handle
  return handle === null || handle === undefined ? -socket.writableLength : handle.bytesWritten - handle.writeQueueSize
}

/** A client that has read something within so many milliseconds counts as reading. */
const recent = 1000

/** What waits for one client. */
export class Account {
  #own = 0
  /** Memory that is held for it outside of its socket, such as requests that wait. */
  #elsewhere = 0
  #shared: Array<Uint8Array> | undefined
  #sharedBytes = 0
  #taken = 0
  #readAt = 0
  /** The bytes in the kernel's queue when it was last asked, and the bytes that it had taken by then. */
  #queued = 0
  #queuedAt = -1
  /** Bytes that were seen to leave the kernel's queue while nothing was added to it. */
  sentByKernel = 0
  /** The position in the order in which clients were last seen to read. */
  order = 0
  /** Its index among those that hold something, or -1. */
  index = -1
  /** The connection is being ended: nothing is counted for it any more. */
  #isClosed = false
  /**
   * Ends the connection in the manner of its protocol, with a reason for the client. Absent for HTTP, where an answer
   * that has begun can only be cut.
   */
  end: (() => void) | undefined

  constructor(
    readonly socket: Duplex,
    private readonly budget: UnsentBudget
  ) {}

  /** All that is held for this client, including what it shares with others. */
  get bytes(): number {
    return this.#own + this.#sharedBytes
  }

  /** Has the kernel asked about the client's queue, as it is doubtful whether the client reads. */
  watch(): void {
    if (!this.#isClosed) this.budget.watched.add(this)
  }

  /** Called with the bytes in the kernel's queue. While nothing is added they can only become fewer. */
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

  /** Notes that the client has read just now. */
  noteRead(now: number): void {
    this.#taken = takenBy(this.socket) + this.sentByKernel
    this.#readAt = now
    this.order = this.budget.nextOrder()
  }

  /** Counts anew. To be called after a write that the operating system did not take whole, and when some of it left. */
  recount(): void {
    if (this.#isClosed) return
    const own = this.#elsewhere + Math.max(0, this.socket.writableLength - this.#sharedBytes)
    const difference = own - this.#own
    if (difference === 0) return
    this.#own = own
    this.budget.add(this, difference)
  }

  /** Counts memory that is held for this client outside of its socket; a negative number of bytes takes it back. */
  hold(bytes: number): void {
    this.#elsewhere += bytes
    this.recount()
  }

  /** Counts bytes that are sent to others too, once for all of them. */
  share(bytes: Uint8Array): void {
    if (this.#isClosed) return
    if (this.#shared === undefined) this.#shared = [bytes]
    else this.#shared.push(bytes)
    this.#sharedBytes += bytes.length
    // First take back what is no longer its own.
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

  /** Undoes {@link share} for what has left the socket, oldest first. */
  unshareSent(): void {
    const waiting = this.socket.writableLength
    while (this.#shared !== undefined && this.#shared.length > 0) {
      const oldest = this.#shared[0]!
      if (this.#sharedBytes - oldest.length < waiting) break
      this.unshare(oldest)
    }
    this.recount()
  }

  /** Gives everything back for good. Returns the bytes that it held. */
  close(): number {
    if (this.#isClosed) return 0
    const { bytes } = this
    this.#isClosed = true
    this.end = undefined
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
  /** Connections that are being ended. */
  readonly #ending = new Set<Account>()
  /** Connections about which the kernel is to be asked. */
  readonly watched = new Set<Account>()
  #counted = 0
  /** The bytes of connections that are being ended. */
  #leaving = 0
  #now = 0
  #order = 0
  #isRelieving = false

  /** @param limit bytes over all connections */
  constructor(
    private readonly limit: number,
    private readonly tags: MetricTags
  ) {}

  /** All bytes that wait; what is shared counts once. */
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

  /** Opens the account of a connection; it is closed with the connection. */
  open(socket: Accounted): Account {
    const known = socket[account]
    if (known !== undefined) return known
    const opened = new Account(socket, this)
    socket[account] = opened
    socket.once("close", () => opened.close())
    return opened
  }

  /**
   * Whether an answer of so many bytes may be written. Connections that are cut hold their memory until this iteration of
   * the event loop ends, in which many requests can come.
   */
  admits(bytes: number): boolean {
    return this.total + bytes <= 1.5 * this.limit
  }

  /**
   * Checks who reads, and cuts HTTP connections whose clients have read nothing for `readTimeout`. To be called about
   * once a second, with monotonic milliseconds. Returns how many were cut.
   */
  tick(now: number, readTimeout: number): number {
    this.#now = now
    let cut = 0
    for (const held of [...this.#holding]) {
      held.recount()
      held.checkRead(now)
      if (held.index === -1 || held.end !== undefined || now - held.readAt < readTimeout) continue
      this.#cut(held)
      ConnectionMetrics.countCut("not_reading", this.tags)
      cut++
    }
    return cut
  }

  /** Connections that may not be read, since the last call. */
  possiblyStalled(): ReadonlyArray<Account> {
    const possiblyStalled = [...this.watched]
    this.watched.clear()
    for (const held of this.#holding) if (this.#now - held.readAt >= recent) possiblyStalled.push(held)
    return possiblyStalled
  }

  /** Counts bytes that a connection holds by itself; a negative number takes them back. */
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

  /** Adds a connection to those that hold something, or removes it. */
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

  /** Ends connections until three quarters of the budget are in use, so that this is not done for each write. */
  #relieve(): void {
    // Those that are being ended since the last time must free their memory now.
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
    const { end, socket } = held
    const bytes = held.close()
    this.#leaving += bytes
    this.#ending.add(held)
    socket.once("close", () => {
      if (this.#ending.delete(held)) this.#leaving -= bytes
    })
    if (end === undefined) socket.destroy()
    else end()
  }
}
