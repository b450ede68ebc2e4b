/**
 * Calls to an upstream service: with time limits, retries within a budget, a circuit breaker, metrics and a span.
 *
 * The breaker is inside the retries, so that it admits and counts each try. A rejected try is not retried, and no retry
 * is awaited once the breaker is open.
 */
import { Duration, Effect, Metric, Ref, type Scope, Stream } from "effect"
import * as Monotonic from "../Monotonic.ts"
import * as Breaker from "./Resilience/CircuitBreaker.ts"
import * as CircuitBreakerState from "./Resilience/CircuitBreakerState.ts"
import * as RetryBudget from "./Resilience/RetryBudget.ts"
import * as RetryPolicy from "./Resilience/RetryPolicy.ts"
import {
  measuredOutcomes,
  type Outcome,
  outcomeOf,
  UpstreamFailure,
  verdictOf,
  verdictOnPart,
  verdictOnWhole
} from "./Resilience/UpstreamFailure.ts"
import * as ResilientStream from "./ResilientStream.ts"

export { durations } from "./UpstreamMetrics.ts"

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
  readonly budget?: RetryBudget.Settings
}

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
    const settings = options.breaker ?? CircuitBreakerState.defaults
    const breaker = yield* Breaker.make(upstream, settings)
    const budget = RetryBudget.make(options.budget ?? RetryBudget.defaults)
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
      for (const counter of [retried, rejected]) Metric.tagged(counter, "operation", operation).register()
      const timed = Metric.tagged(options.durations, "operation", operation)
      for (const outcome of measuredOutcomes) Metric.tagged(timed, "outcome", outcome).register()
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

    const measured = <A, R>(operation: string, request: Effect.Effect<A, UpstreamFailure, R>) =>
      Effect.flatMap(Monotonic.millis, start =>
        Effect.onExit(request, exit => measure(operation, start, outcomeOf(exit)))
      )

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

    const call: Resilience["call"] = (policy, attempt) => {
      const { caller, isBackground = false, operation, part } = policy
      const protectBy = (guard: Breaker.Breaker) => (isBackground ? guard.protectBackground : guard.protect)
      /** The part comes first, so that its rejections take no permit of the upstream. */
      const guard = <B, R2>(request: Effect.Effect<B, UpstreamFailure, R2>) =>
        part === undefined
          ? protectBy(breaker)(request, onCall)
          : protectBy(part)(
              protectBy(breaker)(request, caller === undefined ? onPart : clearing(verdictOfCaller(caller))),
              verdictOnPart
            )
      const totalMillis = Duration.toMillis(policy.totalLimit)
      const tryMillis = Duration.toMillis(policy.tryLimit)

      const oneTry = (deadline: number, isFirst: Ref.Ref<boolean>) =>
        Effect.gen(function* () {
          if (yield* Ref.getAndSet(isFirst, false)) yield* budget.deposit
          const limit = Math.min(tryMillis, deadline - (yield* Monotonic.millis))
          return yield* attempt.pipe(
            Effect.timeoutFail({ duration: limit, onTimeout: timeout(operation, limit) }),
            request => measured(operation, request)
          )
        }).pipe(guard, Effect.catchTag("CircuitOpen", onRejected(operation)))

      const allowed = (deadline: number) => (failure: UpstreamFailure, delay: number) =>
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
        const deadline = (yield* Monotonic.millis) + totalMillis
        const attempts = oneTry(deadline, yield* Ref.make(true))
        return yield* policy.repeatable ? Effect.retry(attempts, RetryPolicy.retries(allowed(deadline))) : attempts
      }).pipe(
        Effect.withSpan(`${upstream}.${operation}`, { attributes: { upstream, operation }, captureStackTrace: false })
      )
    }

    const stream: Resilience["stream"] = ({ operation, totalLimit }, open) =>
      ResilientStream.make({
        limitMillis: Duration.toMillis(totalLimit),
        onTimeout: timeout(operation, totalLimit),
        open: Effect.zipRight(budget.deposit, open),
        protect: request =>
          Effect.catchTag(breaker.protectWithPermit(request, verdictOf), "CircuitOpen", onRejected(operation)),
        onBroken: permit => breaker.settle(permit, "failure"),
        onEnd: (start, outcome) => measure(operation, start, outcome)
      }).pipe(
        Stream.withSpan(`${upstream}.${operation}`, { attributes: { upstream, operation }, captureStackTrace: false })
      )

    return { breaker, call, stream }
  })
