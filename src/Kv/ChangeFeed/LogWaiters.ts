/**
 * Followers of all kinds: their limit, their index by what they read, and those that wait for changes of the log. A scan
 * of the log finds the waiting ones whose queries select a change.
 */

import { Duration, Effect, Schema, type Scope } from "effect"
import * as Direct from "../../base/Direct.ts"
import { Signal } from "../../base/Inbox.ts"
import * as Supervision from "../../base/Supervision.ts"
import * as Monotonic from "../../base/Time/Monotonic.ts"
import { DrainingSignal } from "../../Http/DrainingSignal.ts"
import { ChangeLog, type ChangeQuery } from "../ChangeLog.ts"
import { type Page, type Pages, type Position, tail } from "./Pages.ts"

/** The feed accepts no more followers: the limit is reached, or the service is shutting down. */
export class FeedBusy extends Schema.TaggedError<FeedBusy>()("FeedBusy", {
  /** Suitable for clients. */
  reason: Schema.String,
  retryAfterSeconds: Schema.Int
}) {
  override get message(): string {
    return this.reason
  }
}

/** Counts followers of all kinds against their limit. */
export class FollowerSlots {
  /** The current number of followers. */
  count = 0

  constructor(
    private readonly limit: number,
    private readonly isDraining: () => boolean
  ) {}

  /** Fails if no slot is free. */
  readonly check: Effect.Effect<void, FeedBusy> = Effect.suspend(() => {
    if (this.isDraining()) {
      return new FeedBusy({ reason: "The service is shutting down", retryAfterSeconds: 1 })
    }
    return this.count < this.limit
      ? Effect.void
      : new FeedBusy({ reason: `There are already ${this.limit} followers of the change log`, retryAfterSeconds: 5 })
  })

  /** Takes a slot if {@link check} succeeds. {@link release} returns it. */
  readonly acquire: Effect.Effect<void, FeedBusy> = Effect.zipRight(
    this.check,
    Effect.sync(() => this.take())
  )

  take(): void {
    this.count++
  }

  release(): void {
    this.count--
  }
}

/**
 * Readers indexed by their tenant or namespace, so that the cost of a commit is proportional to the number of its
 * readers.
 */
export class ReadersByPart<A extends { readonly query: ChangeQuery }> {
  private readonly groups = { tenant: new Map<string, Set<A>>(), namespace: new Map<string, Set<A>>() }
  private count = 0

  get size(): number {
    return this.count
  }

  private placeOf({ namespace, tenant }: ChangeQuery): readonly [groups: Map<string, Set<A>>, name: string] {
    return namespace === undefined ? [this.groups.tenant, tenant] : [this.groups.namespace, namespace]
  }

  add(reader: A): void {
    const [groups, name] = this.placeOf(reader.query)
    const group = groups.get(name)
    if (group === undefined) groups.set(name, new Set([reader]))
    else group.add(reader)
    this.count++
  }

  /** Returns whether the reader was present. */
  delete(reader: A): boolean {
    const [groups, name] = this.placeOf(reader.query)
    const group = groups.get(name)
    if (group === undefined || !group.delete(reader)) return false
    if (group.size === 0) groups.delete(name)
    this.count--
    return true
  }

  all(): ReadonlyArray<A> {
    return Object.values(this.groups).flatMap(groups => [...groups.values()].flatMap(group => [...group]))
  }

  /** Groups of readers that may need changes of an unfiltered page, each with the last `seq` of these changes. */
  groupsOf(page: Page): ReadonlyArray<{ readonly readers: ReadonlySet<A>; readonly lastSeq: number }> {
    if (page.count === 0) return []
    const found: Array<{ readonly readers: ReadonlySet<A>; readonly lastSeq: number }> = []
    const add = (readers: ReadonlySet<A> | undefined, lastSeq: number): void => {
      if (readers !== undefined) found.push({ readers, lastSeq })
    }
    const { namespace, tenant } = this.groups
    const all = tenant.get("")
    add(all, page.lastSeq)
    if (this.count === (all?.size ?? 0)) return found
    for (const [name, seq] of page.lastSeqs("tenant")) if (name !== "") add(tenant.get(name), seq)
    if (namespace.size === 0) return found
    for (const [name, seq] of page.lastSeqs("namespace")) add(namespace.get(name), seq)
    return found
  }
}

/** Why a wait has ended: the log may have grown, the deadline has passed, or the service drains. */
export type WakeReason = "grown" | "deadline" | "draining"

export interface Reader {
  readonly query: ChangeQuery
  /**
   * How far the log was scanned for the reader. It replaces `query.after`, and a wait advances it past changes that the
   * query does not select.
   */
  position: Position
}

interface Waiter {
  readonly reader: Reader
  readonly query: ChangeQuery
  /** In monotonic milliseconds. */
  readonly deadline: number
  readonly resume: (reason: WakeReason) => void
}

/** The end of a log. Only ends of the same epoch can be compared. */
interface End {
  readonly lastSeq: number
  /** `undefined` before the first read of the log. */
  readonly epoch: string | undefined
}

/**
 * A scan of one log, and the readers that wait for what it finds. Positions of readers belong to the log of their scan:
 * a log that was reset or replaced needs another scan.
 */
class Scan {
  private readonly waiters = new ReadersByPart<Waiter>()
  private readonly epoch: string | undefined
  /** How far the log was scanned for all waiters. Some may have read further on their own. */
  lastSeq: number

  /** Starts at the known end of the log. */
  constructor({ epoch, lastSeq }: End) {
    this.epoch = epoch
    this.lastSeq = lastSeq
  }

  get isAwaited(): boolean {
    return this.waiters.size > 0
  }

  /** Whether a later end shows that the log was reset or replaced. */
  isOutdatedBy({ epoch, lastSeq }: End): boolean {
    return epoch !== this.epoch || lastSeq < this.lastSeq
  }

  add(waiter: Waiter): void {
    this.waiters.add(waiter)
  }

  /** Removes a waiter, whose reader continues from the scanned position. Returns whether it was still waiting. */
  remove(waiter: Waiter): boolean {
    if (!this.waiters.delete(waiter)) return false
    const { reader } = waiter
    const { after, epoch } = reader.position
    if (after < this.lastSeq) reader.position = { epoch, after: this.lastSeq }
    return true
  }

  /** Scans an unfiltered page after the position, and wakes the waiters for which it has changes. */
  advance(page: Page): void {
    this.wake("grown", this.selectedBy(page))
    this.lastSeq = page.lastSeq
  }

  wakeAll(reason: WakeReason): void {
    this.wake(reason, this.waiters.all())
  }

  /** Wakes the waiters whose deadline has passed. `now` is in monotonic milliseconds. */
  wakeDue(now: number): void {
    this.wake(
      "deadline",
      this.waiters.all().filter(({ deadline }) => deadline <= now)
    )
  }

  private wake(reason: WakeReason, concerned: ReadonlyArray<Waiter>): void {
    for (const waiter of concerned) if (this.remove(waiter)) waiter.resume(reason)
  }

  private selectedBy(page: Page): ReadonlyArray<Waiter> {
    const found: Array<Waiter> = []
    for (const { lastSeq, readers } of this.waiters.groupsOf(page)) {
      for (const waiter of readers) {
        const { query, reader } = waiter
        const { after } = reader.position
        if (after >= lastSeq) continue
        // The others of the group may wait for other keys.
        if (query.namespace === undefined || page.hasFor(query, after)) found.push(waiter)
      }
    }
    return found
  }
}

/**
 * Readers that wait for changes which their queries select. They are callbacks, served by three fibers regardless of
 * their number: a wait that races two fibers costs ten times as much as the event itself.
 */
export interface LogWaiters {
  /**
   * Waits until the log may have changes for the reader after its position. The deadline is in monotonic milliseconds,
   * accurate to a second, or `Infinity`. Wake-ups may be spurious. The position then shows how far the log was scanned,
   * also after an interruption.
   */
  readonly wait: (reader: Reader, deadline: number) => Effect.Effect<WakeReason>
}

export const spuriousWakeupPause = Duration.millis(20)

/** The pauses between reads while the store is unavailable, in milliseconds. */
export const unavailablePauses = { first: 100, longest: 2000 } as const

/** Starts the fibers that serve the waiters, until the scope closes. */
export const make = (pages: Pages): Effect.Effect<LogWaiters, never, ChangeLog | DrainingSignal | Scope.Scope> =>
  Effect.gen(function* () {
    const log = yield* ChangeLog
    const draining = yield* DrainingSignal
    const occupancy = new Supervision.Occupancy()
    const restarted = new Signal()
    /** The end of the log that the last reads have seen. */
    const end = () => ({ lastSeq: pages.end(), epoch: pages.epoch() })
    let current = new Scan(end())

    /** Scans from the known end of the log. The waiters of the previous scan are woken, and read for themselves. */
    const restart = (): void => {
      const previous = current
      current = new Scan(end())
      restarted.set()
      previous.wakeAll("grown")
    }

    const watch = Effect.gen(function* () {
      restarted.clear()
      if (!current.isAwaited) return yield* restarted.wait
      if (current.isOutdatedBy(end())) return restart()
      const scan = current
      const from = scan.lastSeq
      const grown = Direct.map(log.awaitPast(from), () => true)
      const hasGrown = yield* Direct.raceFirst(
        grown,
        Direct.map(restarted.wait, () => false)
      )
      if (!hasGrown) return
      // If the read fails, each reader finds out whether the failure concerns it.
      const page = yield* Effect.tapErrorCause(pages.next(tail(from)), () => Effect.sync(restart))
      if (scan !== current) return
      if (scan.isOutdatedBy(page)) return restart()
      scan.advance(page)
      if (page.lastSeq === from) yield* Effect.sleep(spuriousWakeupPause)
    }).pipe(
      Effect.catchAll(() => Effect.void),
      Effect.catchAllCause(cause =>
        Effect.zipRight(
          Effect.logError("The wait for changes of the log failed", cause),
          Effect.sleep(Duration.seconds(1))
        )
      )
    )

    yield* Supervision.forkScoped("watch over the change log", Effect.forever(watch))
    yield* Supervision.tickScoped(
      "deadlines of polls",
      Duration.seconds(1),
      occupancy,
      Effect.map(Monotonic.millis, now => {
        current.wakeDue(now)
        occupancy.set(current.isAwaited)
      })
    )
    yield* Effect.forkScoped(Effect.map(draining.started, () => current.wakeAll("draining")))

    return {
      wait: (reader, deadline) =>
        Effect.async<WakeReason>(resume => {
          if (draining.hasStarted()) return resume(Effect.succeed("draining"))
          // Another reader may have seen that the log has grown, or was reset or replaced.
          const { after, epoch } = reader.position
          if (after !== pages.end() || epoch !== pages.epoch()) return resume(Effect.succeed("grown"))
          // The scan advances the position, so it must be one of the same log.
          if (!current.isAwaited || current.isOutdatedBy(end())) restart()
          const scan = current
          const waiter: Waiter = {
            reader,
            query: reader.query,
            deadline,
            resume: reason => resume(Effect.succeed(reason))
          }
          scan.add(waiter)
          occupancy.set(true)
          return Effect.sync(() => scan.remove(waiter))
        })
    }
  })
