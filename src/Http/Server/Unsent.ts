/**
 * A budget of bytes that wait for clients, over all connections of a server.
 *
 * Each connection has limits of its own, yet many connections that each stay within them can together fill the memory.
 * So the bytes are counted over all of them. Above the budget, connections are ended: first those whose client has
 * taken nothing for longest, then those that hold most.
 */
import type { Duplex } from "node:stream"
import * as ConnectionMetrics from "../ConnectionMetrics.ts"

/** What Node's TCP handle counts (`stream_base`): bytes that libuv was given, and those of them that it still has. */
interface Counting {
  readonly _handle?: { readonly bytesWritten: number; readonly writeQueueSize: number } | null
}

const account = Symbol("causeway/Account")

interface Accounted extends Duplex {
  [account]?: Account
}

/**
 * How many bytes the operating system has taken for a client so far. Node itself tells only when a write has left as a
 * whole, and one write can be many megabytes.
 */
const takenBy = (socket: Duplex & Counting): number => {
  const handle = socket._handle
  return handle === null || handle === undefined ? -socket.writableLength : handle.bytesWritten - handle.writeQueueSize
}

/** A client that took something less than so many milliseconds ago counts as reading. */
const recent = 1000

/** What waits for one client. */
export class Account {
  #own = 0
  /** Memory that is held for it outside of its socket, such as requests that wait for their turn. */
  #elsewhere = 0
  #shared: Array<Uint8Array> | undefined
  #sharedBytes = 0
  #taken = 0
  #readAt = 0
  #queued = 0
  #toldAt = -1
  /** Bytes that left the operating system's own queue while it took nothing from here. */
  passedOn = 0
  /** The place in the order in which clients were last seen to read. */
  order = 0
  /** Its place among those that hold something, or -1. */
  place = -1
  /** Once the connection is being ended, nothing is counted for it any more. */
  #isOver = false
  /**
   * Ends the connection in the manner of its protocol, with a reason for the client. Absent for HTTP, where an answer
   * that has begun can only be cut.
   */
  end: (() => void) | undefined

  constructor(
    readonly socket: Duplex,
    private readonly budget: Unsent
  ) {}

  /** All that is held for this client, what it shares with others included. */
  get bytes(): number {
    return this.#own + this.#sharedBytes
  }

  /** Has the operating system's queue looked at: its owner doubts that the client reads. */
  watch(): void {
    if (!this.#isOver) this.budget.watched.add(this)
  }

  /** Tells how many bytes lie in the operating system's queue. They only become fewer while nothing is added. */
  tell(queued: number): void {
    const taken = takenBy(this.socket)
    if (taken === this.#toldAt && queued < this.#queued) this.passedOn += this.#queued - queued
    this.#queued = queued
    this.#toldAt = taken
  }

  /** See {@link Unsent.admits}. */
  admits(bytes: number): boolean {
    return this.budget.admits(bytes)
  }

  /** When the client last took something or had nothing to take, as far as {@link look} saw it. */
  get readAt(): number {
    return this.#readAt
  }

  /** Looks whether the client has taken something since the last look, or has nothing to take. */
  look(now: number): void {
    const isOwed = this.socket.writableLength > 0 || this.#sharedBytes > 0
    if (!isOwed || takenBy(this.socket) + this.passedOn !== this.#taken) this.begin(now)
  }

  /** Takes the client for one that has just read. */
  begin(now: number): void {
    this.#taken = takenBy(this.socket) + this.passedOn
    this.#readAt = now
    this.order = this.budget.nextOrder()
  }

  /** To be called after a write that the operating system did not take as a whole, and when some of it has left. */
  settle(): void {
    if (this.#isOver) return
    const own = this.#elsewhere + Math.max(0, this.socket.writableLength - this.#sharedBytes)
    const difference = own - this.#own
    if (difference === 0) return
    this.#own = own
    this.budget.add(this, difference)
  }

  /** Counts memory that is held for this client outside of its socket; a negative number of bytes takes it back. */
  hold(bytes: number): void {
    this.#elsewhere += bytes
    this.settle()
  }

  /** Counts bytes that are sent to others too, once for all of them. */
  share(bytes: Uint8Array): void {
    if (this.#isOver) return
    if (this.#shared === undefined) this.#shared = [bytes]
    else this.#shared.push(bytes)
    this.#sharedBytes += bytes.length
    // First what is no longer its own, lest it counts twice.
    this.settle()
    this.budget.share(this, bytes)
  }

  /** Undoes {@link share}. */
  unshare(bytes: Uint8Array): void {
    const place = this.#shared?.indexOf(bytes) ?? -1
    if (place === -1) return
    this.#shared!.splice(place, 1)
    this.#sharedBytes -= bytes.length
    this.budget.unshare(this, bytes)
    this.settle()
  }

  /** Undoes {@link share} of what has left the socket, the oldest first. */
  unshareSent(): void {
    const waiting = this.socket.writableLength
    while (this.#shared !== undefined && this.#shared.length > 0) {
      const oldest = this.#shared[0]!
      if (this.#sharedBytes - oldest.length < waiting) break
      this.unshare(oldest)
    }
    this.settle()
  }

  /** Gives everything back for good. Returns how many bytes it held. */
  close(): number {
    if (this.#isOver) return 0
    const { bytes } = this
    this.#isOver = true
    this.end = undefined
    this.#sharedBytes = 0
    for (const shared of this.#shared?.splice(0) ?? []) this.budget.unshare(this, shared)
    const own = this.#own
    this.#own = 0
    this.budget.add(this, -own)
    return bytes
  }
}

/** The account of a connection, if its server keeps one. */
export const accountOf = (socket: Accounted | null): Account | undefined => socket?.[account]

/** To be called after a write on a connection. */
export const noteWritten = (socket: Accounted | null): void => {
  if (socket !== null && socket.writableLength > 0) socket[account]?.settle()
}

/**
 * Whether the client behind a connection reads, for who looks now and then. What the operating system takes while it
 * has room says nothing of the client; that it takes more after it was full does.
 */
export class Reading {
  #wasFull = false
  #taken = 0
  #passedOn = 0

  constructor(private readonly socket: Accounted) {}

  /** Whether the client has read something since the last call, as far as that shows. */
  look(): boolean {
    const taken = takenBy(this.socket)
    const passedOn = this.socket[account]?.passedOn ?? 0
    const hasRead = (this.#wasFull && taken !== this.#taken) || passedOn !== this.#passedOn
    this.#wasFull = this.socket.writableLength > 0
    this.#taken = taken
    this.#passedOn = passedOn
    return hasRead
  }
}

/** See the head of this file. */
export class Unsent {
  readonly #holding: Array<Account> = []
  readonly #shared = new Map<Uint8Array, number>()
  /** Connections that were told to end and have not done so yet. */
  readonly #ending = new Set<Account>()
  /** Connections of which their owners doubt that they are read. */
  readonly watched = new Set<Account>()
  #counted = 0
  /** What connections held that are being ended, until they are gone. */
  #leaving = 0
  #now = 0
  #order = 0
  #isRelieving = false

  /** @param limit bytes over all connections */
  constructor(private readonly limit: number) {}

  /** All bytes that wait, each shared piece counted once. */
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
   * Whether an answer of so many bytes may be written. Connections that are cut hold their memory until the end of this
   * turn of the event loop, and within one turn many requests can come.
   */
  admits(bytes: number): boolean {
    return this.total + bytes <= 1.5 * this.limit
  }

  /**
   * Looks who reads, and cuts HTTP connections whose client has taken nothing for `patience`. To be called about once
   * a second; times in milliseconds of monotonic time. Returns how many were cut.
   */
  tick(now: number, patience: number): number {
    this.#now = now
    let cut = 0
    for (const held of [...this.#holding]) {
      held.settle()
      held.look(now)
      if (held.place === -1 || held.end !== undefined || now - held.readAt < patience) continue
      this.#cut(held)
      ConnectionMetrics.cut.increment("not_reading")
      cut++
    }
    return cut
  }

  /** Connections that are not known to be read, since the last call. */
  suspects(): ReadonlyArray<Account> {
    const suspects = [...this.watched]
    this.watched.clear()
    for (const held of this.#holding) if (this.#now - held.readAt >= recent) suspects.push(held)
    return suspects
  }

  /** Counts bytes that one connection alone holds more than before. */
  add(of: Account, bytes: number): void {
    this.#counted += bytes
    this.#place(of)
    if (bytes > 0) this.#check()
  }

  share(of: Account, bytes: Uint8Array): void {
    const holders = this.#shared.get(bytes) ?? 0
    this.#shared.set(bytes, holders + 1)
    this.#place(of)
    if (holders > 0) return
    this.#counted += bytes.length
    this.#check()
  }

  unshare(of: Account, bytes: Uint8Array): void {
    const holders = this.#shared.get(bytes) ?? 0
    if (holders > 1) this.#shared.set(bytes, holders - 1)
    else if (this.#shared.delete(bytes)) this.#counted -= bytes.length
    this.#place(of)
  }

  /** Puts a connection among those that hold something, or takes it out. */
  #place(of: Account): void {
    const holds = of.bytes > 0
    if (holds === of.place >= 0) return
    if (holds) {
      of.place = this.#holding.length
      this.#holding.push(of)
      of.begin(this.#now)
      return
    }
    const last = this.#holding.pop()!
    if (last !== of) {
      this.#holding[of.place] = last
      last.place = of.place
    }
    of.place = -1
  }

  #check(): void {
    if (this.#isRelieving || this.#counted <= this.limit) return
    this.#isRelieving = true
    this.#relieve()
    this.#isRelieving = false
  }

  /** Ends connections until three quarters of the budget are in use: a little more, lest it is done for each write. */
  #relieve(): void {
    // Those that were told to end before may not hold their memory any longer.
    for (const { socket } of this.#ending) socket.destroy()
    for (const held of this.#holding) held.look(this.#now)
    const isStalled = (held: Account): boolean => this.#now - held.readAt >= recent
    const inOrder = [...this.#holding].sort((a, b) => {
      if (isStalled(a) !== isStalled(b)) return isStalled(a) ? -1 : 1
      return (isStalled(a) ? 0 : b.bytes - a.bytes) || a.order - b.order
    })
    for (const held of inOrder) {
      if (this.#counted <= 0.75 * this.limit) return
      ConnectionMetrics.cut.increment("unsent_bytes")
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
