import { Cause, Clock, Duration, Effect, Either, Exit, type Scope } from "effect"
import { StoreBusy, StoreUnavailable } from "../Kv/Store.ts"
import type { Outage } from "./Outage.ts"

/** What a write weighs against the bounds of a group and of the queue. */
export interface Weight {
  readonly operations: number
  readonly bytes: number
}

export interface Options<A, B, E> {
  /**
   * Commits a group, all at once as far as durability goes, and says what became of each write, in order.
   * It is given one group at a time; its failure is that of every write in the group.
   */
  readonly commit: (
    group: ReadonlyArray<A>,
    now: number
  ) => Effect.Effect<ReadonlyArray<Either.Either<B, E>>, StoreUnavailable>
  readonly weigh: (write: A) => Weight
  /** Where a group ends; a single write may be heavier. */
  readonly maxGroup?: Weight
  /** How many writes may wait beside the group in flight. */
  readonly maxWaiting?: number
  /** How many bytes of writes may wait; one that finds the queue empty may be larger. */
  readonly maxWaitingBytes?: number
  /** How long a group may be in flight before its callers, and all others, are told that the store is away. */
  readonly patience?: Duration.DurationInput
  /** Told of each group when its answer is there. */
  readonly observe?: (group: {
    readonly writes: number
    readonly millis: number
    readonly outcome: "ok" | "failed"
  }) => void
  /** Told when writes fail, be it one of a group, and when a whole group was committed. */
  readonly outage?: Outage
}

export interface GroupCommit<A, B, E> {
  /**
   * Has a write committed with whatever else waits. Interrupting it takes the write back while it waits; once it is
   * in flight it goes on without the caller.
   */
  readonly submit: (write: A) => Effect.Effect<B, E | StoreBusy | StoreUnavailable>
  /** Whether a group has been in flight for too long. */
  readonly isStuck: () => boolean
}

type Complete<B, E> = (exit: Exit.Exit<B, E | StoreUnavailable>) => void

/**
 * A write and whoever waits for it. It lets go of a caller that has its answer: else this caller, whose cancellation
 * refers to the write, would be kept alive by itself until memory is collected in full.
 */
class Waiting<A, B, E> {
  private resume: Complete<B, E> | undefined

  constructor(
    readonly write: A,
    readonly weight: Weight,
    resume: Complete<B, E>
  ) {
    this.resume = resume
  }

  complete(exit: Exit.Exit<B, E | StoreUnavailable>): void {
    const { resume } = this
    this.resume = undefined
    resume?.(exit)
  }
}

interface Flight<A, B, E> {
  readonly group: ReadonlyArray<Waiting<A, B, E>>
  readonly startedAt: number
  /** For measuring: by a clock that nobody sets. */
  readonly startedAtNanos: bigint
}

const MiB = 1024 * 1024

/** The state of a committer, changed only by plain synchronous steps. */
class Queue<A, B, E> {
  readonly waiting = new Set<Waiting<A, B, E>>()
  waitingBytes = 0
  flight: Flight<A, B, E> | undefined
  stuck = false
  closing = false
  private listeners: Array<() => void> = []

  constructor(
    private readonly maxGroup: Weight,
    private readonly maxWaiting: number,
    private readonly maxWaitingBytes: number
  ) {}

  isFullFor(weight: Weight): boolean {
    return (
      this.waiting.size >= this.maxWaiting ||
      (this.waiting.size > 0 && this.waitingBytes + weight.bytes > this.maxWaitingBytes)
    )
  }

  add(item: Waiting<A, B, E>): void {
    this.waiting.add(item)
    this.waitingBytes += item.weight.bytes
    this.changed()
  }

  remove(item: Waiting<A, B, E>): void {
    if (!this.waiting.delete(item)) return
    this.waitingBytes -= item.weight.bytes
    this.changed()
  }

  takeGroup(): ReadonlyArray<Waiting<A, B, E>> {
    const group: Array<Waiting<A, B, E>> = []
    let operations = 0
    let bytes = 0
    for (const item of this.waiting) {
      operations += item.weight.operations
      bytes += item.weight.bytes
      if (group.length > 0 && (operations > this.maxGroup.operations || bytes > this.maxGroup.bytes)) break
      group.push(item)
      this.waiting.delete(item)
      this.waitingBytes -= item.weight.bytes
    }
    return group
  }

  /** Tells everybody who is there that the store is away; what is in flight stays so until its answer comes. */
  giveUp(reason: string): void {
    this.stuck = true
    const lost = [...this.flight!.group, ...this.waiting]
    this.waiting.clear()
    this.waitingBytes = 0
    for (const item of lost) item.complete(Exit.fail(new StoreUnavailable({ reason })))
    this.changed()
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
}

/**
 * A committer that gathers the writes of many callers into groups, so that they share one transaction and one flush.
 *
 * While a group is in flight new writes wait, up to a bound beyond which they are refused with `StoreBusy`. When the
 * group does not come back in time, its callers and all who wait fail with `StoreUnavailable`, and later ones fail at
 * once until its answer arrives after all. The end of the scope refuses new writes and finishes those that are there.
 */
export const make = <A, B, E = never>(
  options: Options<A, B, E>
): Effect.Effect<GroupCommit<A, B, E>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const patience = Duration.toMillis(options.patience ?? "1800 millis")
    const clock = yield* Effect.clock
    const queue = new Queue<A, B, E>(
      options.maxGroup ?? { operations: 1024, bytes: 4 * MiB },
      options.maxWaiting ?? 10_000,
      options.maxWaitingBytes ?? 64 * MiB
    )

    const settle = (exit: Exit.Exit<ReadonlyArray<Either.Either<B, E>>, StoreUnavailable>): void => {
      const { group, startedAtNanos } = queue.flight!
      options.observe?.({
        writes: group.length,
        millis: Number(clock.unsafeCurrentTimeNanos() - startedAtNanos) / 1e6,
        outcome: Exit.isSuccess(exit) ? "ok" : "failed"
      })
      for (const [index, item] of group.entries()) {
        if (Exit.isFailure(exit)) item.complete(Exit.failCause(exit.cause))
        else item.complete(outcomeOf(exit.value[index]))
      }
      queue.flight = undefined
      queue.stuck = false
      queue.changed()
    }

    const commitGroup = Effect.flatMap(Clock.currentTimeMillis, now => {
      const group = queue.takeGroup()
      if (group.length === 0) return Effect.void
      queue.flight = { group, startedAt: now, startedAtNanos: clock.unsafeCurrentTimeNanos() }
      queue.changed()
      return Effect.suspend(() =>
        options.commit(
          group.map(item => item.write),
          now
        )
      ).pipe(
        Effect.exit,
        Effect.flatMap(exit => {
          settle(
            Exit.isFailure(exit) && Cause.isInterruptedOnly(exit.cause)
              ? Exit.fail(new StoreUnavailable({ reason: "the commit was interrupted" }))
              : exit
          )
          if (options.outage === undefined) return Effect.void
          const failure = failureOf(exit)
          return failure === undefined ? options.outage.over : options.outage.failed(failure)
        })
      )
    })

    const committer = Effect.forever(
      Effect.zipRight(
        queue.until(() => queue.waiting.size > 0),
        commitGroup
      )
    )

    // One sleep at a time for all groups: it looks at the group that is in flight when it wakes.
    const watchdog = Effect.forever(
      Effect.gen(function* () {
        yield* queue.until(() => queue.flight !== undefined && !queue.stuck)
        const flight = queue.flight
        // A group that came back at once is gone before this fiber has its turn.
        if (flight === undefined) return
        const now = yield* Clock.currentTimeMillis
        const left = flight.startedAt + patience - now
        if (left > 0) yield* Effect.sleep(left)
        else if (queue.flight === flight && !queue.stuck) {
          const reason = `a commit takes longer than ${patience} ms`
          queue.giveUp(reason)
          yield* options.outage?.failed(Cause.fail(new StoreUnavailable({ reason }))) ?? Effect.void
        }
      })
    )

    yield* Effect.forkScoped(Effect.interruptible(committer))
    yield* Effect.forkScoped(Effect.interruptible(watchdog))
    yield* Effect.addFinalizer(() => {
      queue.closing = true
      return queue.until(() => queue.stuck || (queue.flight === undefined && queue.waiting.size === 0))
    })

    const submit = (write: A): Effect.Effect<B, E | StoreBusy | StoreUnavailable> =>
      Effect.async(resume => {
        if (queue.closing) return resume(Effect.fail(new StoreUnavailable({ reason: "the store is closing" })))
        if (queue.stuck) return resume(Effect.fail(new StoreUnavailable({ reason: "a commit does not come back" })))
        const weight = options.weigh(write)
        if (queue.isFullFor(weight)) return resume(Effect.fail(new StoreBusy({ retryAfterSeconds: 1 })))
        const item = new Waiting<A, B, E>(write, weight, resume)
        queue.add(item)
        return Effect.sync(() => queue.remove(item))
      })

    return { submit, isStuck: () => queue.stuck }
  })

const outcomeOf = <B, E>(outcome: Either.Either<B, E> | undefined): Exit.Exit<B, E | StoreUnavailable> => {
  if (outcome === undefined) return Exit.fail(new StoreUnavailable({ reason: "the commit lost sight of a write" }))
  return Either.isRight(outcome) ? Exit.succeed(outcome.right) : Exit.fail(outcome.left)
}

/** What kept a group, or the first of its writes, from being committed. */
const failureOf = <B, E>(
  exit: Exit.Exit<ReadonlyArray<Either.Either<B, E>>, StoreUnavailable>
): Cause.Cause<StoreUnavailable> | undefined => {
  if (Exit.isFailure(exit)) return exit.cause
  for (const outcome of exit.value) {
    if (Either.isLeft(outcome) && outcome.left instanceof StoreUnavailable) return Cause.fail(outcome.left)
  }
  return undefined
}
