/**
 * Calls to an upstream service: with time limits, retries within a budget, a circuit breaker, metrics and a span.
 *
 * The breaker is inside the retries, so that it admits and counts each try. A rejected try is not retried, and no retry
 * is awaited once the breaker is open.
 */
import { Duration, Effect, ExecutionStrategy, Exit, Metric, MetricBoundaries, Option, Scope, Stream } from "effect"
import * as MetricTags from "../MetricTags.ts"
import * as Monotonic from "../Monotonic.ts"
import * as Breaker from "./Resilience/CircuitBreaker.ts"
import * as CircuitBreakerState from "./Resilience/CircuitBreakerState.ts"
import * as Retries from "./Resilience/Retries.ts"
import {
  isFault,
  measuredOutcomes,
  type Outcome,
  outcomeOf,
  UpstreamFailure,
  verdictOf,
  verdictOnPart,
  verdictOnWhole
} from "./Resilience/UpstreamFailure.ts"

export interface Policy {
  /** The call's name in metrics and spans. */
  readonly operation: string
  /** Whether the call is idempotent. */
  readonly repeatable: boolean
  /** Time limit of a single try. */
  readonly tryLimit: Duration.DurationInput
  /** Time limit of all tries and the delays between them. */
  readonly totalLimit: Duration.DurationInput
  /**
   * The breaker of the part of the upstream that is called. Failures count there, and only an unreachable service counts
   * against the upstream.
   */
  readonly part?: Breaker.Breaker
  /**
   * The caller, if `part` is that of the caller. Then one failure of each caller counts against the upstream too, until
   * a call succeeds: what fails for several callers is not their fault.
   */
  readonly caller?: string
  /** Whether the call is never the probe of a half-open breaker. */
  readonly isBackground?: boolean
}

/** The policy of a stream, which is never retried. The limit covers it from the request to its last element. */
export interface StreamPolicy {
  readonly operation: string
  readonly totalLimit: Duration.DurationInput
}

/** Calls to one upstream service. */
export interface Resilience {
  readonly breaker: Breaker.Breaker
  /** Runs a call; `attempt` is one try. */
  readonly call: <A, R>(
    policy: Policy,
    attempt: Effect.Effect<A, UpstreamFailure, R>
  ) => Effect.Effect<A, UpstreamFailure, R>
  /**
   * Opens a stream.
   *
   * For the breaker it is a success with its first elements, and one more failed call if it breaks off later. At the
   * limit the request is aborted even if the consumer does not pull. That is a failure only before the first elements,
   * since the consumer may be slow.
   */
  readonly stream: <A>(
    policy: StreamPolicy,
    open: Effect.Effect<Stream.Stream<A, UpstreamFailure>, UpstreamFailure, Scope.Scope>
  ) => Stream.Stream<A, UpstreamFailure>
}

export interface Options {
  /** Name in metrics, logs and spans. */
  readonly upstream: string
  /** Histogram of single requests in milliseconds; gets the labels `operation` and `outcome`. */
  readonly durations: Metric.Metric.Histogram<number>
  /** Operations whose series are registered with 0. */
  readonly operations?: ReadonlyArray<string>
  readonly breaker?: CircuitBreakerState.Settings
  readonly budget?: Retries.BudgetSettings
}

/** A histogram of request durations in milliseconds; gets the labels `operation` and `outcome`. */
export const durations = (name: string, description: string): Metric.Metric.Histogram<number> =>
  Metric.histogram(
    name,
    MetricBoundaries.fromIterable([
      5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 15_000, 30_000, 60_000, 120_000
    ]),
    description
  )

const retryCounter = Metric.counter("upstream_retries_total", {
  description: "Retries of calls to an upstream",
  incremental: true
})

const rejectedCounter = Metric.counter("circuit_breaker_rejected_total", {
  description: "Calls that an open circuit breaker rejected",
  incremental: true
})

export const make = (options: Options): Effect.Effect<Resilience, never, Scope.Scope> =>
  Effect.gen(function* () {
    const { upstream } = options
    const tags = yield* MetricTags.current
    const settings = options.breaker ?? CircuitBreakerState.defaults
    const breaker = yield* Breaker.make(upstream, settings)
    const budget = Retries.makeBudget(options.budget)
    const retried = Metric.tagged(retryCounter, "upstream", upstream)
    const rejected = Metric.tagged(rejectedCounter, "upstream", upstream)
    /** Callers whose failure has counted since the last success. Once there are enough to open, all failures count. */
    const failed = new Set<string>()

    const verdictOfCaller =
      (caller: string): typeof verdictOf =>
      exit => {
        const verdict = verdictOf(exit)
        if (verdict !== "failure" || failed.size >= settings.consecutiveFailures) return verdict
        if (failed.has(caller)) return verdictOnWhole(exit)
        failed.add(caller)
        return verdict
      }

    /** A verdict on the upstream. A success clears the failed callers. */
    const clearing =
      (judge: typeof verdictOf): typeof verdictOf =>
      exit => {
        const verdict = judge(exit)
        if (verdict === "success" && failed.size > 0) failed.clear()
        return verdict
      }
    const [onCall, onPart] = [clearing(verdictOf), clearing(verdictOnWhole)]

    for (const operation of options.operations ?? []) {
      const counters = [retried, rejected].map(counter => Metric.tagged(counter, "operation", operation))
      const timed = Metric.tagged(options.durations, "operation", operation)
      const histograms = measuredOutcomes.map(outcome => Metric.tagged(timed, "outcome", outcome))
      MetricTags.register([...counters, ...histograms], tags)
    }

    const measure = (operation: string, start: number, outcome: Outcome) =>
      Effect.flatMap(Monotonic.millis, now => {
        const millis = Math.max(0, now - start)
        const histogram = Metric.tagged(Metric.tagged(options.durations, "operation", operation), "outcome", outcome)
        return Effect.zipRight(
          Metric.update(histogram, millis),
          Effect.annotateLogs(Effect.logDebug("Called an upstream"), { upstream, operation, outcome, millis })
        )
      })

    const timeout = (operation: string, limit: Duration.DurationInput) => () =>
      new UpstreamFailure({
        operation,
        reason: "timeout",
        message: `No answer to ${operation} within ${Monotonic.words(limit)}`
      })

    const onRejected = (operation: string) => (error: Breaker.CircuitOpen) =>
      Effect.zipRight(
        Metric.increment(Metric.tagged(rejected, "operation", operation)),
        new UpstreamFailure({
          operation,
          reason: "circuit_open",
          retryAfterMillis: error.retryAfterMillis,
          message: `The circuit breaker of ${error.upstream} is open; next try in ${Math.ceil(error.retryAfterMillis / 1000)} s`
        })
      )

    const spanned = (operation: string) =>
      [`${upstream}.${operation}`, { attributes: { upstream, operation }, captureStackTrace: false }] as const

    const call: Resilience["call"] = (policy, attempt) => {
      const { caller, isBackground, operation, part } = policy
      /** The part comes first, so that its rejections take no permit of the upstream. */
      const guard = <B, R2>(request: Effect.Effect<B, UpstreamFailure, R2>) =>
        part === undefined
          ? breaker.protect(request, onCall, isBackground)
          : part.protect(
              breaker.protect(request, caller === undefined ? onPart : clearing(verdictOfCaller(caller)), isBackground),
              verdictOnPart,
              isBackground
            )
      const tryMillis = Duration.toMillis(policy.tryLimit)

      const mayRetry = (deadline: number) => (failure: UpstreamFailure, delay: number) =>
        Effect.gen(function* () {
          if ((yield* Monotonic.millis) + delay >= deadline) return false
          if ((yield* breaker.state) === "open") return false
          if (part !== undefined && (yield* part.state) === "open") return false
          if (!(yield* budget.withdraw)) return false
          yield* Metric.increment(Metric.tagged(retried, "operation", operation))
          yield* Effect.logDebug("Retrying a call to an upstream").pipe(
            Effect.annotateLogs({ upstream, operation, delayMs: Math.round(delay), failure: failure.message })
          )
          return true
        })

      return Effect.gen(function* () {
        const deadline = (yield* Monotonic.millis) + Duration.toMillis(policy.totalLimit)
        let isFirst = true
        const oneTry = Effect.gen(function* () {
          if (isFirst) yield* budget.deposit
          isFirst = false
          const start = yield* Monotonic.millis
          const limit = Math.min(tryMillis, deadline - start)
          return yield* attempt.pipe(
            Effect.timeoutFail({ duration: limit, onTimeout: timeout(operation, limit) }),
            Effect.onExit(exit => measure(operation, start, outcomeOf(exit)))
          )
        }).pipe(guard, Effect.catchTag("CircuitOpen", onRejected(operation)))
        return yield* policy.repeatable ? Effect.retry(oneTry, Retries.schedule(mayRetry(deadline))) : oneTry
      }).pipe(Effect.withSpan(...spanned(operation)))
    }

    const stream: Resilience["stream"] = ({ operation, totalLimit }, open) =>
      Effect.gen(function* () {
        const onTimeout = timeout(operation, totalLimit)
        const limitMillis = Duration.toMillis(totalLimit)
        const start = yield* Monotonic.millis
        const deadline = start + limitMillis
        const scope = yield* Effect.scope
        let sent = false
        let outcome: Outcome = "interrupted"
        yield* Effect.addFinalizer(() => (sent ? measure(operation, start, outcome) : Effect.void))

        // Its own scope ends the request at the limit even if the consumer does not pull.
        const request = yield* Scope.fork(scope, ExecutionStrategy.sequential)
        yield* Effect.forkScoped(Effect.delay(Scope.close(request, Exit.void), limitMillis))

        // Any failure at the limit is a timeout.
        const inTime = <B>(step: Effect.Effect<B, Option.Option<UpstreamFailure>>) =>
          Effect.flatMap(Monotonic.millis, now =>
            step.pipe(
              Effect.timeoutFail({ duration: Math.max(0, deadline - now), onTimeout: () => Option.some(onTimeout()) }),
              Effect.catchAll(error =>
                Effect.flatMap(Monotonic.millis, later =>
                  Effect.fail(later >= deadline ? Option.some(onTimeout()) : error)
                )
              )
            )
          )

        /** Lasts until the first elements arrive; `undefined` if there are none. */
        const begin = Effect.suspend(() => {
          sent = true
          return Scope.extend(Effect.zipRight(budget.deposit, open), request)
        }).pipe(
          Effect.flatMap(body => Scope.extend(Stream.toPull(body), scope)),
          Effect.mapError(Option.some),
          Effect.flatMap(pull => Effect.map(pull, first => ({ pull, first }))),
          inTime,
          Effect.catchAll(Option.match({ onNone: () => Effect.succeed(undefined), onSome: Effect.fail })),
          Effect.onExit(exit =>
            Effect.sync(() => {
              if (Exit.isFailure(exit)) outcome = outcomeOf(exit)
            })
          )
        )

        const [begun, permit] = yield* Effect.catchTag(
          breaker.protectWithPermit(begin, verdictOf),
          "CircuitOpen",
          onRejected(operation)
        )
        if (begun === undefined) {
          outcome = "ok"
          return Stream.empty
        }
        const rest = Effect.tapError(inTime(begun.pull), end => {
          outcome = Option.isNone(end) ? "ok" : outcomeOf(Exit.fail(end.value))
          return Option.isSome(end) && end.value.reason !== "timeout" && isFault(end.value)
            ? breaker.settle(permit, "failure")
            : Effect.void
        })
        return Stream.concat(Stream.fromChunk(begun.first), Stream.repeatEffectChunkOption(rest))
      }).pipe(Stream.unwrapScoped, Stream.withSpan(...spanned(operation)))

    return { breaker, call, stream }
  })
