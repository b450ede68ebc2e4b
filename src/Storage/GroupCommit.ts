import { Cause, Clock, Duration, Effect, Either, Exit, type Scope } from "effect"
import * as Direct from "../Direct.ts"
import { untilRead } from "../EventLoop.ts"
import { StoreBusy, StoreUnavailable } from "../Kv/Store.ts"
import * as Monotonic from "../Monotonic.ts"
import * as Supervision from "../Supervision.ts"
import { BatchWindow, type Wait } from "./BatchWindow.ts"
import { GroupQueue, type Waiting, type Weight } from "./GroupQueue.ts"

export type { Weight } from "./GroupQueue.ts"

/** A group of writes that was committed, or was not. */
export interface CommittedGroup {
  readonly writes: number
  /** From the moment that the group was closed to its answer. */
  readonly millis: number
  readonly outcome: "ok" | "failed"
}

export interface Options<A, B, E> {
  /**
   * Commits a group, all at once as far as durability goes, and says what became of each write, in order.
   * It is given one group at a time; its failure is that of every write in the group. Once the group is given up, its
   * callers were told that the store is unavailable: no new attempt may be begun.
   */
  readonly commit: (
    group: ReadonlyArray<A>,
    now: number,
    isGivenUp: () => boolean
  ) => Effect.Effect<ReadonlyArray<Either.Either<B, E>>, StoreUnavailable>
  readonly weigh: (write: A) => Weight
  /** Waited for before a group is taken, and not counted as the time of a commit. It must end. */
  readonly prepare?: Effect.Effect<void>
  /**
   * Milliseconds that a group waits for more writes at most, from its first write: see {@link BatchWindow}. A group that
   * is full does not wait. Without this option no group waits.
   */
  readonly maxBatchWaitMillis?: number
  /** Where a group ends; a single write may be heavier. */
  readonly maxGroup?: Weight
  /** How many writes may wait beside the group in flight. */
  readonly maxWaiting?: number
  /** How many bytes of writes may wait; one that finds the queue empty may be larger. */
  readonly maxWaitingBytes?: number
  /**
   * How long a group may be in flight before all other callers are told that the store is unavailable, and its own too. A
   * write that is heavier than a group has more time, in proportion to its bytes.
   */
  readonly patience?: Duration.DurationInput
  /** Told of each group when its answer is there. */
  readonly observe?: (group: CommittedGroup) => void
  /** Told when writes fail, be it one of a group, and when a whole group was committed. */
  readonly outage?: Supervision.Outage
}

export interface GroupCommit<A, B, E> {
  /**
   * Has a write committed with whatever else waits. Interruption withdraws the write while it waits; once it is in
   * flight it goes on without the caller. The effect is direct.
   */
  readonly submit: (write: A) => Effect.Effect<B, E | StoreBusy | StoreUnavailable>
  /** Whether a group has been in flight for too long. */
  readonly isStuck: () => boolean
}

/** Where a group ends unless the options say otherwise. */
export const maxGroup: Weight = { operations: 1024, bytes: 4 * 1024 * 1024 }

/** How long the writes that are there at the end of the scope have. */
const closing = Duration.seconds(4)

/**
 * A committer that gathers the writes of many callers into groups, so that they share one transaction and one flush.
 *
 * A group may wait for more writes: see {@link BatchWindow}. A write that comes alone does not wait, except for the first
 * one after a burst: it is not known yet that the callers of the burst have gone.
 *
 * While a group is in flight new writes wait, up to a bound beyond which they are refused with `StoreBusy`. When the
 * group does not come back in time, its callers and all who wait fail with `StoreUnavailable`, and later ones fail at
 * once until its answer arrives after all. A write that is heavier than a group is given as much longer as it is heavier,
 * so that the rate that is asked for is that of the heaviest group; those that wait are not, since nobody can tell yet
 * whether the store is slow or gone. The end of the scope refuses new writes and finishes those that are there; what
 * is left after a limit fails.
 */
export const make = <A, B, E = never>(
  options: Options<A, B, E>
): Effect.Effect<GroupCommit<A, B, E>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const patience = Duration.toMillis(options.patience ?? "1800 millis")
    const clock = yield* Effect.clock
    const most = options.maxGroup ?? maxGroup
    const queue = new GroupQueue<A, B, E>(
      most,
      options.maxWaiting ?? 10_000,
      options.maxWaitingBytes ?? 64 * 1024 * 1024
    )

    // What a caller throws on its answer must not keep others from theirs.
    const faults: Array<Cause.Cause<never>> = []
    const answer = (item: Waiting<A, B, E>, exit: Exit.Exit<B, E | StoreUnavailable>): void => {
      const { resume } = item
      item.resume = undefined
      try {
        resume?.(exit)
      } catch (error) {
        faults.push(Cause.die(error))
      }
    }
    const reportFaults = Effect.suspend(() =>
      faults.length === 0
        ? Effect.void
        : Effect.logError("A caller of a commit failed on its answer", faults.splice(0).reduce(Cause.parallel))
    )

    const window = new BatchWindow(options.maxBatchWaitMillis ?? 0)

    const settle = (exit: Exit.Exit<ReadonlyArray<Either.Either<B, E>>, StoreUnavailable>): void => {
      const { group, startedAt } = queue.flight!
      const millis = Monotonic.unsafeMillis(clock) - startedAt
      options.observe?.({
        writes: group.length,
        millis,
        outcome: Exit.isSuccess(exit) ? "ok" : "failed"
      })
      // Before anybody is told: a caller may bring its next write at once.
      window.onAnswered(group.length, queue.size, millis)
      queue.settle()
      for (let index = 0; index < group.length; index++) {
        answer(group[index]!, Exit.isFailure(exit) ? Exit.failCause(exit.cause) : outcomeOf(exit.value[index]))
      }
    }

    const commitGroup = (wait: Wait | undefined) =>
      Effect.flatMap(Clock.currentTimeMillis, now => {
        const { bytes, group } = queue.takeGroup()
        if (wait !== undefined) window.onTaken(group.length, wait)
        if (group.length === 0) return Effect.void
        const limit = patience * Math.max(1, bytes / most.bytes)
        const flight = queue.begin(group, Monotonic.unsafeMillis(clock), limit)
        return Effect.suspend(() =>
          options.commit(
            group.map(item => item.write!),
            now,
            () => flight.isGivenUp
          )
        ).pipe(
          Effect.exit,
          Effect.flatMap(exit => {
            settle(
              Exit.isFailure(exit) && Cause.isInterruptedOnly(exit.cause)
                ? Exit.fail(new StoreUnavailable({ reason: "the commit was interrupted" }))
                : exit
            )
            if (options.outage === undefined) return reportFaults
            const failure = failureOf(exit)
            return Effect.zipRight(
              reportFaults,
              failure === undefined ? options.outage.over : options.outage.failed(failure)
            )
          })
        )
      })

    const awaitMore = Effect.suspend(() => queue.awaitWrites(window.expected, window.maxWaitMillis))
    const committer = Effect.forever(
      Effect.zipRight(
        queue.until(() => queue.size > 0),
        Effect.flatMap(awaitMore, wait =>
          options.prepare === undefined ? commitGroup(wait) : Effect.zipRight(options.prepare, commitGroup(wait))
        )
      )
    )

    const fail = (items: ReadonlyArray<Waiting<A, B, E>>, reason: string): void => {
      for (const item of items) answer(item, Exit.fail(new StoreUnavailable({ reason })))
    }

    // One sleep at a time for all groups, none longer than a group may have: it looks at the group that is in flight when
    // it wakes.
    const watchdog = Effect.forever(
      Effect.gen(function* () {
        yield* queue.until(() => queue.flight !== undefined && !queue.flight.isGivenUp)
        const flight = queue.flight
        // A group that came back at once is gone before this fiber has its turn.
        if (flight === undefined) return
        const age = Monotonic.unsafeMillis(clock) - flight.startedAt
        const left = (queue.isStuck ? flight.limit : patience) - age
        if (left > 0) return yield* Effect.sleep(Math.min(left, patience))
        // Where the process stood still, the answer may be there already.
        yield* untilRead
        if (queue.flight !== flight) return
        const reason = `a commit takes longer than ${Math.round(queue.isStuck ? flight.limit : patience)} ms`
        queue.stall(age >= flight.limit)
        if (flight.isGivenUp) fail(flight.group, reason)
        fail(queue.dropWaiting(), reason)
        yield* reportFaults
        if (flight.isGivenUp) yield* options.outage?.failed(Cause.fail(new StoreUnavailable({ reason }))) ?? Effect.void
      })
    )

    /** Answers the writes that are still there when nobody will commit them any more. */
    const abandon = Effect.suspend(() => {
      fail(queue.flight?.group ?? [], "the store closed during the commit; its outcome is unknown")
      fail(queue.dropWaiting(), "the store closed before the write was begun; nothing of it was done")
      return reportFaults
    })

    yield* Supervision.forkScoped("group commit", committer)
    yield* Supervision.forkScoped("watchdog of group commits", watchdog)
    yield* Effect.addFinalizer(() => {
      queue.close()
      const isDone = queue.until(
        () => queue.flight?.isGivenUp === true || (queue.flight === undefined && queue.size === 0)
      )
      // Many groups before a slow disk may each come back in time, and yet be too many.
      return Effect.zipRight(Supervision.within(closing, isDone), abandon)
    })

    return {
      submit: write =>
        Direct.async(resume => {
          const refusal = refusalOf(queue)
          if (refusal !== undefined) {
            resume(Exit.fail(refusal))
            return noop
          }
          const weight = options.weigh(write)
          if (queue.isFullFor(weight)) {
            resume(Exit.fail(new StoreBusy({ retryAfterSeconds: 1 })))
            return noop
          }
          const item: Waiting<A, B, E> = { write, weight, resume, isQueued: true }
          queue.add(item)
          return () => queue.remove(item)
        }),
      isStuck: () => queue.isStuck
    }
  })

const noop = (): void => {}

/** Why no write is taken in, if none is. */
const refusalOf = (queue: { readonly isClosing: boolean; readonly isStuck: boolean }): StoreUnavailable | undefined => {
  if (queue.isClosing) return new StoreUnavailable({ reason: "the store is closing" })
  return queue.isStuck ? new StoreUnavailable({ reason: "a commit does not come back" }) : undefined
}

const outcomeOf = <B, E>(outcome: Either.Either<B, E> | undefined): Exit.Exit<B, E | StoreUnavailable> => {
  if (outcome === undefined)
    return Exit.fail(new StoreUnavailable({ reason: "the commit returned no outcome for a write" }))
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
