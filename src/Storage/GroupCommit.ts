import { Cause, Clock, Duration, Effect, Either, Exit, type Scope } from "effect"
import * as Direct from "../Direct.ts"
import { StoreBusy, StoreUnavailable } from "../Kv/Store.ts"
import * as Monotonic from "../Monotonic.ts"
import * as Supervision from "../Supervision.ts"
import { GroupQueue, Waiting, type Weight } from "./GroupQueue.ts"
import type { Outage } from "./Outage.ts"

export type { Weight } from "./GroupQueue.ts"

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
   * Has a write committed with whatever else waits. Interruption withdraws the write while it waits; once it is in
   * flight it goes on without the caller. The effect is direct.
   */
  readonly submit: (write: A) => Effect.Effect<B, E | StoreBusy | StoreUnavailable>
  /** Whether a group has been in flight for too long. */
  readonly isStuck: () => boolean
}

const MiB = 1024 * 1024

/** How long the writes that are there at the end of the scope have. */
const closing = Duration.seconds(4)

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
    const queue = new GroupQueue<A, B, E>(
      options.maxGroup ?? { operations: 1024, bytes: 4 * MiB },
      options.maxWaiting ?? 10_000,
      options.maxWaitingBytes ?? 64 * MiB
    )

    // What a caller throws on its answer must not keep others from theirs.
    const faults: Array<Cause.Cause<never>> = []
    const tell = (item: Waiting<A, B, E>, exit: Exit.Exit<B, E | StoreUnavailable>): void => {
      try {
        item.complete(exit)
      } catch (error) {
        faults.push(Cause.die(error))
      }
    }
    const reportFaults = Effect.suspend(() =>
      faults.length === 0
        ? Effect.void
        : Effect.logError("A caller of a commit failed on its answer", faults.splice(0).reduce(Cause.parallel))
    )

    const settle = (exit: Exit.Exit<ReadonlyArray<Either.Either<B, E>>, StoreUnavailable>): void => {
      const { group, startedAt } = queue.flight!
      options.observe?.({
        writes: group.length,
        millis: Monotonic.unsafeMillis(clock) - startedAt,
        outcome: Exit.isSuccess(exit) ? "ok" : "failed"
      })
      // Before anybody is told: a caller may bring its next write at once.
      queue.flight = undefined
      queue.stuck = false
      for (let index = 0; index < group.length; index++) {
        tell(group[index]!, Exit.isFailure(exit) ? Exit.failCause(exit.cause) : outcomeOf(exit.value[index]))
      }
      queue.changed()
    }

    const commitGroup = Effect.flatMap(Clock.currentTimeMillis, now => {
      const group = queue.takeGroup()
      if (group.length === 0) return Effect.void
      queue.flight = { group, startedAt: Monotonic.unsafeMillis(clock) }
      queue.changed()
      return Effect.suspend(() =>
        options.commit(
          group.map(item => item.write!),
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
          if (options.outage === undefined) return reportFaults
          const failure = failureOf(exit)
          return Effect.zipRight(
            reportFaults,
            failure === undefined ? options.outage.over : options.outage.failed(failure)
          )
        })
      )
    })

    const committer = Effect.forever(
      Effect.zipRight(
        queue.until(() => queue.size > 0),
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
        const now = Monotonic.unsafeMillis(clock)
        const left = flight.startedAt + patience - now
        if (left > 0) yield* Effect.sleep(left)
        else if (queue.flight === flight && !queue.stuck) {
          const reason = `a commit takes longer than ${patience} ms`
          for (const item of queue.giveUp()) tell(item, Exit.fail(new StoreUnavailable({ reason })))
          queue.changed()
          yield* reportFaults
          yield* options.outage?.failed(Cause.fail(new StoreUnavailable({ reason }))) ?? Effect.void
        }
      })
    )

    yield* Supervision.forkScoped("group commit", committer)
    yield* Supervision.forkScoped("watchdog of group commits", watchdog)
    yield* Effect.addFinalizer(() => {
      queue.closing = true
      const isDone = queue.until(() => queue.stuck || (queue.flight === undefined && queue.size === 0))
      // Many groups before a slow disk may each come back in time.
      return Supervision.within(closing, isDone)
    })

    return {
      submit: write =>
        Direct.async(resume => {
          const refusal = refusalOf(queue)
          if (refusal !== undefined) {
            resume(Exit.fail(refusal))
            return nothing
          }
          const weight = options.weigh(write)
          if (queue.isFullFor(weight)) {
            resume(Exit.fail(new StoreBusy({ retryAfterSeconds: 1 })))
            return nothing
          }
          const item = new Waiting<A, B, E>(write, weight, resume)
          queue.add(item)
          return () => queue.remove(item)
        }),
      isStuck: () => queue.stuck
    }
  })

const nothing = (): void => {}

/** Why no write is taken in, if none is. */
const refusalOf = (queue: { readonly closing: boolean; readonly stuck: boolean }): StoreUnavailable | undefined => {
  if (queue.closing) return new StoreUnavailable({ reason: "the store is closing" })
  return queue.stuck ? new StoreUnavailable({ reason: "a commit does not come back" }) : undefined
}

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
