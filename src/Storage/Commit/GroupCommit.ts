/** Gathers the writes of many callers into groups, and commits each group in one transaction. */
import { Cause, Clock, Duration, Effect, Either, Exit, Metric, MetricBoundaries, MetricLabel, type Scope } from "effect"
import { constVoid } from "effect/Function"
import { MiB } from "../../base/Bytes.ts"
import * as Direct from "../../base/Direct.ts"
import * as MetricTags from "../../base/Observability/MetricTags.ts"
import * as Supervision from "../../base/Supervision.ts"
import { untilRead } from "../../base/Time/EventLoop.ts"
import * as Monotonic from "../../base/Time/Monotonic.ts"
import { StoreBusy, StoreUnavailable } from "../../Kv/Store.ts"
import { BatchWindow, GroupQueue, type Wait, type Waiting, type Weight } from "./GroupQueue.ts"

export type { Weight } from "./GroupQueue.ts"

export interface CommittedGroup {
  readonly writes: number
  /** From the start of the commit to its answer. */
  readonly millis: number
  readonly outcome: "ok" | "failed"
}

export interface Options<A, B, E> {
  /**
   * Commits a group in one transaction and returns an outcome for each write, in order. Groups are committed one at a
   * time. A failure is that of every write in the group. Once `hasTimedOut` returns true, its writes have
   * failed: the commit must not be tried again.
   */
  readonly commit: (
    group: ReadonlyArray<A>,
    now: number,
    hasTimedOut: () => boolean
  ) => Effect.Effect<ReadonlyArray<Either.Either<B, E>>, StoreUnavailable>
  readonly weigh: (write: A) => Weight
  /** Runs before a group is taken. Its time does not count as commit time. It must end. */
  readonly prepare?: Effect.Effect<void>
  /** How many milliseconds a group that is not full waits for more writes, at most: see {@link BatchWindow}. */
  readonly maxBatchWaitMillis?: number
  /**
   * The least number of milliseconds between the starts of two groups, unless the second one is full: 0 by default. A
   * group has costs of its own, such as a flush, so that constant traffic should not make many small ones.
   */
  readonly spacingMillis?: number
  /** The maximum weight of a group; a single write may be heavier. */
  readonly maxGroup?: Weight
  /** The maximum number of writes that wait while a group is in flight. */
  readonly maxWaiting?: number
  /** The maximum number of bytes of waiting writes. A write that finds the queue empty may be larger. */
  readonly maxWaitingBytes?: number
  /**
   * How long a group may be in flight before its writes and all waiting writes fail with `StoreUnavailable`. A write that
   * is heavier than `maxGroup` gets more time, in proportion to its bytes.
   */
  readonly timeout?: Duration.DurationInput
  readonly observe?: (group: CommittedGroup) => void
  /** Notified when one write of a group or the whole group fails, and when a whole group was committed. */
  readonly outage?: Supervision.Outage
}

export interface GroupCommit<A, B, E> {
  /**
   * Commits a write together with others that are waiting. Interruption withdraws a waiting write. A write in flight
   * continues without its caller. The effect is direct.
   */
  readonly submit: (write: A) => Effect.Effect<B, E | StoreBusy | StoreUnavailable>
  readonly isStuck: () => boolean
}

export const maxGroup: Weight = { operations: 1024, bytes: 4 * MiB }

/** How long the end of the scope waits for the remaining writes. */
const closeTimeout = Duration.seconds(4)

/**
 * A committer that gathers the writes of many callers into groups, which share one transaction and one flush.
 *
 * A group may wait for more writes: see {@link BatchWindow}. A single write does not wait, except for the first one after
 * a burst, when the callers of the burst may still return.
 *
 * While a group is in flight, new writes wait. Above a bound they fail with `StoreBusy`. If the group is not answered
 * before its timeout, its writes and all waiting writes fail with `StoreUnavailable`, and new writes fail at once until
 * the answer arrives. A write that is heavier than `maxGroup` has a longer timeout, so that the required rate is that of
 * the heaviest group. Waiting writes do not get more time: the store may be slow or unavailable. The end of the scope
 * refuses new writes and commits the remaining ones; after a timeout these fail.
 */
export const make = <A, B, E = never>(
  options: Options<A, B, E>
): Effect.Effect<GroupCommit<A, B, E>, never, Scope.Scope> =>
  Effect.gen(function* () {
    const timeoutMillis = Duration.toMillis(options.timeout ?? Duration.millis(1800))
    const clock = yield* Effect.clock
    const queue = new GroupQueue<A, B, E>(
      options.maxGroup ?? maxGroup,
      options.maxWaiting ?? 10_000,
      options.maxWaitingBytes ?? 64 * MiB
    )
    const answers = answering<A, B, E>()
    const parts: Parts<A, B, E> = { clock, queue, timeoutMillis, ...answers }

    const abandon = Effect.suspend(() => {
      answers.fail(queue.flight?.group ?? [], "the store closed during the commit; its outcome is unknown")
      answers.fail(queue.dropWaiting(), "the store closed before the write was started; nothing of it was done")
      return answers.reportFaults
    })

    yield* Supervision.forkScoped("group commit", Effect.forever(committing(options, parts)))
    yield* Supervision.forkScoped("watchdog of group commits", Effect.forever(watching(options, parts)))
    yield* Effect.addFinalizer(() => {
      queue.close()
      const isDone = queue.until(
        () => queue.flight?.state === "timed out" || (queue.flight === undefined && queue.size === 0)
      )
      // Each of many groups may be answered in time, and all of them together exceed the timeout.
      return Effect.zipRight(Supervision.within(closeTimeout, isDone), abandon)
    })

    return { submit: submitting(queue, options.weigh), isStuck: () => queue.isStuck }
  })

/** Answers callers, and collects what they throw: it must not prevent the answers to others. */
const answering = <A, B, E>() => {
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
  const fail = (items: ReadonlyArray<Waiting<A, B, E>>, reason: string): void => {
    for (const item of items) answer(item, Exit.fail(new StoreUnavailable({ reason })))
  }
  const reportFaults = Effect.suspend(() =>
    faults.length === 0
      ? Effect.void
      : Effect.logError("A caller of a commit failed on its answer", faults.splice(0).reduce(Cause.parallel))
  )
  return { answer, fail, reportFaults }
}

interface Parts<A, B, E> extends ReturnType<typeof answering<A, B, E>> {
  readonly clock: Clock.Clock
  readonly queue: GroupQueue<A, B, E>
  /** How long a group in flight may take before it blocks the queue. Its own timeout may be longer. */
  readonly timeoutMillis: number
}

const committing = <A, B, E>(
  {
    commit,
    maxBatchWaitMillis = 0,
    maxGroup: max = maxGroup,
    observe,
    outage,
    prepare,
    spacingMillis = 0
  }: Options<A, B, E>,
  { answer, clock, queue, reportFaults, timeoutMillis }: Parts<A, B, E>
): Effect.Effect<void> => {
  const window = new BatchWindow(maxBatchWaitMillis)
  /** When the last group started. Not by Effect's clock: the wait also ends while the clock of a test is stopped. */
  let lastStart = Number.NEGATIVE_INFINITY

  const settle = (exit: Exit.Exit<ReadonlyArray<Either.Either<B, E>>, StoreUnavailable>): void => {
    const { group, startedAt } = queue.flight!
    const millis = Monotonic.unsafeMillis(clock) - startedAt
    observe?.({ writes: group.length, millis, outcome: Exit.isSuccess(exit) ? "ok" : "failed" })
    // Before the answers: a caller may submit its next write at once.
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
      lastStart = performance.now()
      const limit = timeoutMillis * Math.max(1, bytes / max.bytes)
      const flight = queue.begin(group, Monotonic.unsafeMillis(clock), limit)
      return Effect.suspend(() =>
        commit(
          group.map(item => item.write!),
          now,
          () => flight.state === "timed out"
        )
      ).pipe(
        Effect.exit,
        Effect.flatMap(exit => {
          settle(
            Exit.isFailure(exit) && Cause.isInterruptedOnly(exit.cause)
              ? Exit.fail(new StoreUnavailable({ reason: "the commit was interrupted" }))
              : exit
          )
          if (outage === undefined) return reportFaults
          const failure = failureOf(exit)
          return Effect.zipRight(reportFaults, failure === undefined ? outage.over : outage.failed(failure))
        })
      )
    })

  return Effect.zipRight(
    queue.until(() => queue.size > 0),
    Effect.flatMap(
      Effect.suspend(() => {
        const pause = lastStart + spacingMillis - performance.now()
        return pause < 1
          ? queue.awaitWrites(window.expected, window.maxWaitMillis)
          : Effect.as(queue.awaitWrites(Number.POSITIVE_INFINITY, pause), undefined)
      }),
      wait => (prepare === undefined ? commitGroup(wait) : Effect.zipRight(prepare, commitGroup(wait)))
    )
  )
}

/**
 * Watches a group in flight. After `timeoutMillis` all waiting writes fail, since the store may be slow or unavailable.
 * After the group's own timeout its writes fail, too.
 *
 * The watchdog sleeps once for all groups, and never longer than `timeoutMillis`: on waking up it checks the group that
 * is in flight by then.
 */
const watching = <A, B, E>(
  { outage }: Pick<Options<A, B, E>, "outage">,
  { clock, fail, queue, reportFaults, timeoutMillis }: Parts<A, B, E>
): Effect.Effect<void> =>
  Effect.gen(function* () {
    yield* queue.until(() => queue.flight !== undefined && queue.flight.state !== "timed out")
    const flight = queue.flight
    // The group may be answered before this fiber runs.
    if (flight === undefined) return
    const age = Monotonic.unsafeMillis(clock) - flight.startedAt
    const limit = queue.isStuck ? flight.timeoutMillis : timeoutMillis
    if (age < limit) return yield* Effect.sleep(Math.min(limit - age, timeoutMillis))
    // If the process was suspended, the answer may have arrived in the meantime.
    yield* untilRead
    if (queue.flight !== flight) return
    const reason = `a commit takes longer than ${Math.round(limit)} ms`
    const hasTimedOut = age >= flight.timeoutMillis
    queue.stall(hasTimedOut ? "timed out" : "late")
    if (hasTimedOut) fail(flight.group, reason)
    fail(queue.dropWaiting(), reason)
    yield* reportFaults
    if (hasTimedOut && outage !== undefined) yield* outage.failed(Cause.fail(new StoreUnavailable({ reason })))
  })

const submitting =
  <A, B, E>(queue: GroupQueue<A, B, E>, weigh: (write: A) => Weight): GroupCommit<A, B, E>["submit"] =>
  write =>
    Direct.async(resume => {
      const refusal = refusalOf(queue)
      if (refusal !== undefined) {
        resume(Exit.fail(refusal))
        return constVoid
      }
      const weight = weigh(write)
      if (queue.isFullFor(weight)) {
        resume(Exit.fail(new StoreBusy({ retryAfterSeconds: 1 })))
        return constVoid
      }
      const item: Waiting<A, B, E> = { write, weight, resume, isQueued: true }
      queue.add(item)
      return () => queue.remove(item)
    })

const refusalOf = (queue: { readonly isClosing: boolean; readonly isStuck: boolean }): StoreUnavailable | undefined => {
  if (queue.isClosing) return new StoreUnavailable({ reason: "the store is closing" })
  return queue.isStuck ? new StoreUnavailable({ reason: "a commit is not answered" }) : undefined
}

const outcomeOf = <B, E>(outcome: Either.Either<B, E> | undefined): Exit.Exit<B, E | StoreUnavailable> => {
  if (outcome === undefined)
    return Exit.fail(new StoreUnavailable({ reason: "the commit returned no outcome for a write" }))
  return Either.isRight(outcome) ? Exit.succeed(outcome.right) : Exit.fail(outcome.left)
}

/** The failure of a group, or of its first write that met an unavailable store; `undefined` if all were decided. */
const failureOf = <B, E>(
  exit: Exit.Exit<ReadonlyArray<Either.Either<B, E>>, StoreUnavailable>
): Cause.Cause<StoreUnavailable> | undefined => {
  if (Exit.isFailure(exit)) return exit.cause
  for (const outcome of exit.value) {
    if (Either.isLeft(outcome) && outcome.left instanceof StoreUnavailable) return Cause.fail(outcome.left)
  }
  return undefined
}

/** Metrics of the groups of `target`. The result registers those of an instance, and returns its observer. */
export const metrics = (target: string, names: { readonly [Name in "commits" | "writes" | "duration"]: string }) => {
  const groups = Metric.counter(names.commits, {
    description: `Groups of writes handed to ${target}, by outcome.`,
    incremental: true
  })
  const byOutcome = {
    ok: Metric.taggedWithLabels(groups, [MetricLabel.make("outcome", "ok")]),
    failed: Metric.taggedWithLabels(groups, [MetricLabel.make("outcome", "failed")])
  }
  const sizes = Metric.histogram(
    names.writes,
    MetricBoundaries.fromIterable([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]),
    "Writes that shared a transaction."
  )
  const durations = Metric.histogram(
    names.duration,
    MetricBoundaries.fromIterable([0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2000]),
    "Milliseconds from the start of a commit of a group of writes until it is durable."
  )
  return (tags: MetricTags.MetricTags) => {
    MetricTags.register([byOutcome.ok, byOutcome.failed, sizes, durations], tags)
    return ({ millis, outcome, writes }: CommittedGroup): void => {
      byOutcome[outcome].unsafeUpdate(1, tags)
      sizes.unsafeUpdate(writes, tags)
      durations.unsafeUpdate(millis, tags)
    }
  }
}
