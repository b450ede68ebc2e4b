/**
 * The writes that wait for a group commit, and the group in flight: state that only plain synchronous steps change.
 */
import { Effect, type Exit } from "effect"
import type { StoreUnavailable } from "../Kv/Store.ts"

/** What a write weighs against the bounds of a group and of the queue. */
export interface Weight {
  readonly operations: number
  readonly bytes: number
}

/** Takes what became of a write. */
export type Complete<B, E> = (exit: Exit.Exit<B, E>) => void

/**
 * A write and whoever waits for it. It lets go of a caller that has its answer, or has left: else this caller, whose
 * cancellation refers to the write, would be kept alive by itself until memory is collected in full.
 */
export class Waiting<A, B, E> {
  /** Whether no group has taken it yet. */
  isQueued = true

  constructor(
    /** Nothing once the write was taken back, as what it holds may be large. */
    public write: A | undefined,
    readonly weight: Weight,
    private caller: Complete<B, E | StoreUnavailable> | undefined
  ) {}

  /** Tells the caller, unless it was told or has left. */
  complete(exit: Exit.Exit<B, E | StoreUnavailable>): void {
    const { caller } = this
    this.caller = undefined
    caller?.(exit)
  }

  /** Has nobody told. */
  forget(): void {
    this.caller = undefined
  }
}

/** A group that is being committed. */
export interface Flight<A, B, E> {
  readonly group: ReadonlyArray<Waiting<A, B, E>>
  /** Monotonic milliseconds. */
  readonly startedAt: number
}

/**
 * The state of a committer.
 *
 * An array rather than a set: with members that come and go, each table that a set outgrows or cleans up lives on
 * in V8's old space and keeps what was in it from being collected young.
 */
export class GroupQueue<A, B, E> {
  private items: Array<Waiting<A, B, E>> = []
  private count = 0
  private bytes = 0
  private listeners: Array<() => void> = []
  flight: Flight<A, B, E> | undefined
  stuck = false
  closing = false

  constructor(
    private readonly maxGroup: Weight,
    private readonly maxWaiting: number,
    private readonly maxWaitingBytes: number
  ) {}

  /** How many writes wait, those in flight left out. */
  get size(): number {
    return this.count
  }

  isFullFor(weight: Weight): boolean {
    return this.count >= this.maxWaiting || (this.count > 0 && this.bytes + weight.bytes > this.maxWaitingBytes)
  }

  add(item: Waiting<A, B, E>): void {
    this.items.push(item)
    this.count++
    this.bytes += item.weight.bytes
    this.changed()
  }

  /** Takes a write back while it waits. In flight it goes on, and nobody is told of it. */
  remove(item: Waiting<A, B, E>): void {
    item.forget()
    if (!item.isQueued) return
    this.leave(item)
    item.write = undefined
    // Seldom enough that a place costs no more to clear than it did to fill.
    if (this.items.length > 2 * this.count) this.items = this.items.filter(({ isQueued }) => isQueued)
    this.changed()
  }

  /** The writes at the front, as many as make up a group. */
  takeGroup(): ReadonlyArray<Waiting<A, B, E>> {
    const { items, maxGroup } = this
    const group: Array<Waiting<A, B, E>> = []
    let operations = 0
    let bytes = 0
    let at = 0
    for (; at < items.length; at++) {
      const item = items[at]!
      if (!item.isQueued) continue
      operations += item.weight.operations
      bytes += item.weight.bytes
      if (group.length > 0 && (operations > maxGroup.operations || bytes > maxGroup.bytes)) break
      group.push(item)
      this.leave(item)
    }
    this.items = items.slice(at)
    return group
  }

  /** Gives up what waits and what is in flight, which stays so until its answer comes. Those who are to be told. */
  giveUp(): ReadonlyArray<Waiting<A, B, E>> {
    this.stuck = true
    const lost = [...this.flight!.group, ...this.items]
    for (const item of this.items) item.isQueued = false
    this.items = []
    this.count = 0
    this.bytes = 0
    return lost
  }

  changed(): void {
    const listeners = this.listeners
    if (listeners.length === 0) return
    this.listeners = []
    for (const listener of listeners) listener()
  }

  /** Waits until the queue is as wished for; one listener for each fiber that waits, and there are few. */
  until(condition: () => boolean): Effect.Effect<void> {
    return Effect.async(resume => {
      const check = (): void => {
        if (condition()) resume(Effect.void)
        else this.listeners.push(check)
      }
      check()
    })
  }

  private leave(item: Waiting<A, B, E>): void {
    item.isQueued = false
    this.count--
    this.bytes -= item.weight.bytes
  }
}
