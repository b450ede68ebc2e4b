/** The writes that wait for a group commit, the group in flight, and how long the next group waits for more. */
import { Effect, type Exit } from "effect"
import type { StoreUnavailable } from "../../Kv/Store.ts"

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
  isClosing = false

  constructor(
    private readonly maxGroup: Weight,
    private readonly maxWaiting: number,
    private readonly maxWaitingBytes: number
  ) {}

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

  begin(group: ReadonlyArray<Waiting<A, B, E>>, startedAt: number, timeoutMillis: number): Flight<A, B, E> {
    this.flight = { group, startedAt, timeoutMillis, state: "in time" }
    this.changed()
    return this.flight
  }

  settle(): void {
    this.flight = undefined
    this.changed()
  }

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

/** The longest wait, as a multiple of the average commit time. */
const maxCommits = 2

/** The weight of the newest commit in the exponentially weighted moving average of commit times. */
const smoothing = 0.25

/** The maximum number of groups between two attempts to wait for all returning clients. */
const maxBackoff = 32

export interface Wait {
  /** How many writes were queued at its start. */
  readonly presentAtStart: number
  readonly millis: number
}

/**
 * Decides how long the next group waits for more writes, by the times and sizes of the last ones.
 *
 * Closed-loop clients write again as soon as they are answered. Without a wait they split into two halves that take
 * turns, and there are twice as many commits as needed. A group therefore waits until as many writes are queued as were
 * in flight or queued when the last group was answered, for at most `maxCommits` average commit times.
 *
 * Clients may be too far away to return in time. A wait has paid if
 * `arrived × averageCommitMillis ≥ waitMillis × presentAtStart`: each write that arrived saved one commit time, and each
 * write that was present waited. After a wait that has not paid, the next groups do not wait for returning clients. After
 * a wait that has paid but not brought all, they wait for as many as returned. The number of such groups doubles with
 * each failed attempt to wait for all, up to `maxBackoff`, and is one again after an attempt that brought all.
 */
export class BatchWindow {
  /** The moving average of commit times in milliseconds, or `undefined` before the first commit. */
  private averageCommitMillis: number | undefined
  /** How many clients returned during the last wait that fell short, or 0 if that wait has not paid. */
  private lastReturned = 0
  /** How many groups are left before the next attempt to wait for all returning clients. */
  private backoffLeft = 0
  /** The value of `backoffLeft` after the last failed attempt, or 0 after an attempt that brought all. */
  private backoff = 0
  /** Whether the next group waits for all returning clients. */
  private waitsForAll = true
  /** How many queued writes the next group waits for. */
  expected = 0

  /** `maxMillis` is the longest wait in milliseconds. */
  constructor(private readonly maxMillis: number) {}

  /** The longest wait of the next group, in milliseconds. */
  get maxWaitMillis(): number {
    return Math.min(this.maxMillis, maxCommits * (this.averageCommitMillis ?? 0))
  }

  /** A group of `size` writes was answered after `millis` milliseconds, while `queued` writes waited. */
  onAnswered(size: number, queued: number, millis: number): void {
    const average = this.averageCommitMillis
    this.averageCommitMillis = average === undefined ? millis : average + smoothing * (millis - average)
    this.waitsForAll = this.backoffLeft === 0
    if (!this.waitsForAll) this.backoffLeft--
    this.expected = queued + (this.waitsForAll ? size : Math.min(size, this.lastReturned))
  }

  /** A group of `size` writes was taken after a wait. */
  onTaken(size: number, { millis, presentAtStart }: Wait): void {
    const arrived = size - presentAtStart
    const hasPaid = arrived * (this.averageCommitMillis ?? 0) >= millis * presentAtStart
    if (hasPaid && size >= this.expected) {
      if (this.waitsForAll) this.backoff = 0
      return
    }
    this.lastReturned = hasPaid ? arrived : 0
    if (!this.waitsForAll) return
    this.backoff = Math.min(maxBackoff, Math.max(1, 2 * this.backoff))
    this.backoffLeft = this.backoff
  }
}
