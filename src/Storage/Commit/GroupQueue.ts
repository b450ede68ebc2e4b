/**
 * The writes that wait for a group commit, and the group in flight.
 */
import { Effect, type Exit } from "effect"
import type { StoreUnavailable } from "../../Kv/Store.ts"
import type { Wait } from "./BatchWindow.ts"

/** The weight of a write, for the limits of a group and of the queue. */
export interface Weight {
  readonly operations: number
  readonly bytes: number
}

/**
 * A write and the callback of its caller. The callback is dropped with the answer or the interruption. Otherwise the
 * caller, whose cancellation refers to the write, would keep itself alive until a full garbage collection.
 */
export interface Waiting<A, B, E> {
  /** `undefined` after the write was withdrawn, because it may be large. */
  write: A | undefined
  readonly weight: Weight
  resume: ((exit: Exit.Exit<B, E | StoreUnavailable>) => void) | undefined
  /** Whether no group has taken the write yet. */
  isQueued: boolean
}

/** A group that is being committed. */
export interface Flight<A, B, E> {
  readonly group: ReadonlyArray<Waiting<A, B, E>>
  /** Monotonic milliseconds. */
  readonly startedAt: number
  /** Milliseconds after which its writes fail. */
  readonly timeoutMillis: number
  /** `late`: it blocks the waiting writes, which have failed. `timed out`: its own writes have failed, too. */
  state: "in time" | "late" | "timed out"
}

/**
 * The waiting writes and the group in flight. Only synchronous steps change this state. After each step the conditions
 * of `until` are checked.
 *
 * The queue is an array, not a set: each table that a set with changing members outgrows stays in V8's old space, and
 * keeps its content from being collected early.
 */
export class GroupQueue<A, B, E> {
  private items: Array<Waiting<A, B, E>> = []
  private operations = 0
  private bytes = 0
  private listeners: Array<() => void> = []
  /** The number of waiting writes, without those in flight. */
  size = 0
  flight: Flight<A, B, E> | undefined
  /** Whether no more writes are accepted. */
  isClosing = false

  constructor(
    private readonly maxGroup: Weight,
    private readonly maxWaiting: number,
    private readonly maxWaitingBytes: number
  ) {}

  /** Whether the group in flight has exceeded the timeout. */
  get isStuck(): boolean {
    return this.flight !== undefined && this.flight.state !== "in time"
  }

  isFullFor(weight: Weight): boolean {
    return this.size >= this.maxWaiting || (this.size > 0 && this.bytes + weight.bytes > this.maxWaitingBytes)
  }

  add(item: Waiting<A, B, E>): void {
    this.items.push(item)
    this.size++
    this.operations += item.weight.operations
    this.bytes += item.weight.bytes
    this.changed()
  }

  /** Withdraws a waiting write. A write in flight continues, and its outcome is dropped. */
  remove(item: Waiting<A, B, E>): void {
    item.resume = undefined
    if (!item.isQueued) return
    this.leave(item)
    item.write = undefined
    // Amortized: removing an item costs no more than adding it did.
    if (this.items.length > 2 * this.size) this.items = this.items.filter(({ isQueued }) => isQueued)
    this.changed()
  }

  /** Takes the writes at the front that fit into a group. Returns them and their bytes. */
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

  /** Marks a taken group as in flight. For `timeoutMillis` see `Flight`. */
  begin(group: ReadonlyArray<Waiting<A, B, E>>, startedAt: number, timeoutMillis: number): Flight<A, B, E> {
    this.flight = { group, startedAt, timeoutMillis, state: "in time" }
    this.changed()
    return this.flight
  }

  /** Marks the group in flight as answered. */
  settle(): void {
    this.flight = undefined
    this.changed()
  }

  /** Marks the group in flight as too slow. */
  stall(state: "late" | "timed out"): void {
    if (this.flight !== undefined) this.flight.state = state
    this.changed()
  }

  /** Accepts no more writes. Waiting writes are still committed. */
  close(): void {
    this.isClosing = true
    this.changed()
  }

  /** Removes and returns the waiting writes. Nothing of them was done. */
  dropWaiting(): ReadonlyArray<Waiting<A, B, E>> {
    const waiting = this.items.filter(({ isQueued }) => isQueued)
    for (const item of waiting) item.isQueued = false
    this.items = []
    this.size = 0
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
   * Waits until `expected` writes are queued, or enough to fill a group, for at most `maxMillis` milliseconds. Returns
   * `undefined` if there is nothing to wait for. Timers count whole milliseconds: a shorter wait is omitted. Uses the
   * system clock, not Effect's, so that the wait also ends while the clock of a test is stopped.
   */
  awaitWrites(expected: number, maxMillis: number): Effect.Effect<Wait | undefined> {
    const isComplete = (): boolean =>
      this.size >= expected || this.operations >= this.maxGroup.operations || this.bytes >= this.maxGroup.bytes
    if (maxMillis < 1 || isComplete()) return Effect.succeed(undefined)
    return Effect.async(resume => {
      const presentAtStart = this.size
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
    this.size--
    this.operations -= item.weight.operations
    this.bytes -= item.weight.bytes
  }
}
