/**
 * The writes that wait for a group commit, and the group in flight.
 */
import { Effect, type Exit } from "effect"
import type { StoreUnavailable } from "../Kv/Store.ts"
import type { Wait } from "./BatchWindow.ts"

/** What a write weighs against the bounds of a group and of the queue. */
export interface Weight {
  readonly operations: number
  readonly bytes: number
}

/**
 * A write and the callback of its caller, which is dropped with the answer or when the caller leaves: else this caller,
 * whose cancellation refers to the write, would be kept alive by itself until memory is collected in full.
 */
export interface Waiting<A, B, E> {
  /** Nothing once the write was withdrawn, as what it holds may be large. */
  write: A | undefined
  readonly weight: Weight
  resume: ((exit: Exit.Exit<B, E | StoreUnavailable>) => void) | undefined
  /** Whether no group has taken it yet. */
  isQueued: boolean
}

/** A group that is being committed. */
export interface Flight<A, B, E> {
  readonly group: ReadonlyArray<Waiting<A, B, E>>
  /** Monotonic milliseconds. */
  readonly startedAt: number
  /** Milliseconds after which its callers are told that it failed. */
  readonly limit: number
  /** Whether they were told. */
  readonly isGivenUp: boolean
}

interface MutableFlight<A, B, E> extends Flight<A, B, E> {
  isGivenUp: boolean
}

/**
 * The writes that wait and the group in flight: state that only synchronous steps change. Each step checks the
 * conditions that fibers wait for with `until`.
 *
 * An array rather than a set: with members that come and go, each table that a set outgrows or cleans up lives on
 * in V8's old space and keeps what was in it from being collected young.
 */
export class GroupQueue<A, B, E> {
  private items: Array<Waiting<A, B, E>> = []
  private count = 0
  private operations = 0
  private bytes = 0
  private listeners: Array<() => void> = []
  private current: MutableFlight<A, B, E> | undefined
  private stuck = false
  private closing = false

  constructor(
    private readonly maxGroup: Weight,
    private readonly maxWaiting: number,
    private readonly maxWaitingBytes: number
  ) {}

  /** How many writes wait, those in flight left out. */
  get size(): number {
    return this.count
  }

  get flight(): Flight<A, B, E> | undefined {
    return this.current
  }

  /** Whether the group in flight takes too long. */
  get isStuck(): boolean {
    return this.stuck
  }

  /** Whether no more writes are taken in. */
  get isClosing(): boolean {
    return this.closing
  }

  isFullFor(weight: Weight): boolean {
    return this.count >= this.maxWaiting || (this.count > 0 && this.bytes + weight.bytes > this.maxWaitingBytes)
  }

  add(item: Waiting<A, B, E>): void {
    this.items.push(item)
    this.count++
    this.operations += item.weight.operations
    this.bytes += item.weight.bytes
    this.changed()
  }

  /** Withdraws a write while it waits. In flight it goes on, and its outcome is dropped. */
  remove(item: Waiting<A, B, E>): void {
    item.resume = undefined
    if (!item.isQueued) return
    this.leave(item)
    item.write = undefined
    // Amortized: removing an item costs no more than adding it did.
    if (this.items.length > 2 * this.count) this.items = this.items.filter(({ isQueued }) => isQueued)
    this.changed()
  }

  /** The writes at the front, as many as make up a group, and their bytes. */
  takeGroup(): { readonly group: ReadonlyArray<Waiting<A, B, E>>; readonly bytes: number } {
    const { items, maxGroup } = this
    const group: Array<Waiting<A, B, E>> = []
    let operations = 0
    let bytes = 0
    let at = 0
    for (; at < items.length; at++) {
      const item = items[at]!
      if (!item.isQueued) continue
      const { weight } = item
      if (
        group.length > 0 &&
        (operations + weight.operations > maxGroup.operations || bytes + weight.bytes > maxGroup.bytes)
      ) {
        break
      }
      operations += weight.operations
      bytes += weight.bytes
      group.push(item)
      this.leave(item)
    }
    this.items = items.slice(at)
    return { group, bytes }
  }

  /** A group that was taken is in flight from now on. For `limit` see `Flight`. */
  begin(group: ReadonlyArray<Waiting<A, B, E>>, startedAt: number, limit: number): Flight<A, B, E> {
    const flight: Flight<A, B, E> = { group, startedAt, limit, isGivenUp: false }
    this.current = flight
    this.changed()
    return flight
  }

  /** The group in flight has its answer. */
  settle(): void {
    this.current = undefined
    this.stuck = false
    this.changed()
  }

  /** The group in flight takes too long; it may be given up, too. */
  stall(isGivenUp: boolean): void {
    this.stuck = true
    if (isGivenUp && this.current !== undefined) this.current.isGivenUp = true
    this.changed()
  }

  /** Takes no more writes in. Those that wait are still committed. */
  close(): void {
    this.closing = true
    this.changed()
  }

  /** Returns the writes that wait, whose callers are to be told that nothing of them was done. */
  dropWaiting(): ReadonlyArray<Waiting<A, B, E>> {
    const waiting = this.items.filter(({ isQueued }) => isQueued)
    for (const item of waiting) item.isQueued = false
    this.items = []
    this.count = 0
    this.operations = 0
    this.bytes = 0
    this.changed()
    return waiting
  }

  private changed(): void {
    const listeners = this.listeners
    if (listeners.length === 0) return
    this.listeners = []
    for (const listener of listeners) listener()
  }

  /** Waits until a condition on the queue is true. It is checked after each change. */
  until(condition: () => boolean): Effect.Effect<void> {
    return Effect.async(resume => {
      const check = (): void => {
        if (condition()) resume(Effect.void)
        else this.listeners.push(check)
      }
      check()
    })
  }

  /**
   * Waits until as many writes are queued as are expected or as fill a group, for `maxMillis` milliseconds at most.
   * Returns `undefined` where there is nothing to wait for. Timers count whole milliseconds, so that a shorter wait is
   * none. Uses the system clock, not Effect's: the wait also ends where the clock of a test stands still.
   */
  awaitWrites(expected: number, maxMillis: number): Effect.Effect<Wait | undefined> {
    const isComplete = (): boolean =>
      this.count >= expected || this.operations >= this.maxGroup.operations || this.bytes >= this.maxGroup.bytes
    if (maxMillis < 1 || isComplete()) return Effect.succeed(undefined)
    return Effect.async(resume => {
      const presentAtStart = this.count
      const startedAt = performance.now()
      let isOver = false
      const end = (): void => {
        isOver = true
        clearTimeout(timer)
        resume(Effect.succeed({ presentAtStart, millis: performance.now() - startedAt }))
      }
      const timer = setTimeout(end, Math.floor(maxMillis))
      const check = (): void => {
        if (isOver) return
        if (isComplete()) end()
        else this.listeners.push(check)
      }
      check()
      return Effect.sync(() => clearTimeout(timer))
    })
  }

  private leave(item: Waiting<A, B, E>): void {
    item.isQueued = false
    this.count--
    this.operations -= item.weight.operations
    this.bytes -= item.weight.bytes
  }
}
