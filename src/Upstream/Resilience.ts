/**
 * Calls to an upstream service: with timeouts, retries within a budget, a circuit breaker, metrics and a span.
 */
import { Duration, Effect, ExecutionStrategy, Exit, Metric, MetricBoundaries, Option, Scope, Stream } from "effect"
import * as MetricTags from "../base/Observability/MetricTags.ts"
import * as Monotonic from "../base/Time/Monotonic.ts"
import type { CircuitOpen } from "./Resilience/CircuitBreaker.ts"
import * as Breaker from "./Resilience/CircuitBreaker.ts"
import * as CircuitBreakerState from "./Resilience/CircuitBreakerState.ts"
import * as Retries from "./Resilience/Retries.ts"
import {
  CallerVerdicts,
  isFault,
  measuredOutcomes,
  type Outcome,
  outcomeOf,
  UpstreamFailure,
  verdictOf,
  verdictOnPart
} from "./Resilience/UpstreamFailure.ts"

/** The names under which an upstream is measured. */
interface TelemetryOptions {
  /** Name in metrics, logs and spans. */
  readonly upstream: string
  /** Histogram of single requests in milliseconds; gets the labels `operation` and `outcome`. */
  readonly durations: Metric.Metric.Histogram<number>
  /** Operations whose series are registered with 0. */
  readonly operations?: ReadonlyArray<string>
}

/** Metrics, logs and spans of one upstream service. */
interface Telemetry {
  /** Records the duration of a request that was sent; `start` is in monotonic milliseconds. */
  readonly measure: (operation: string, start: number, outcome: Outcome) => Effect.Effect<void>
  /** Counts and logs a retry, before its delay. */
  readonly retrying: (operation: string, failure: UpstreamFailure, delayMillis: number) => Effect.Effect<void>
  /** Counts a call that an open breaker rejected, and fails with `circuit_open`. */
  readonly rejected: (operation: string) => (error: CircuitOpen) => Effect.Effect<never, UpstreamFailure>
  /** Name and options of the span of an operation. */
  readonly span: (operation: string) => readonly [
    name: string,
    options: {
      readonly attributes: { readonly upstream: string; readonly operation: string }
      readonly captureStackTrace: false
    }
  ]
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

/** The failure of a call without an answer within `timeout`. */
const timedOut = (operation: string, timeout: Duration.DurationInput) => (): UpstreamFailure =>
  new UpstreamFailure({
    operation,
    reason: "timeout",
    message: `No answer to ${operation} within ${Monotonic.words(timeout)}`
  })

/** Registers the series of `operations` and returns how calls are recorded. */
const makeTelemetry = (options: TelemetryOptions): Effect.Effect<Telemetry> =>
  Effect.map(MetricTags.current, (tags): Telemetry => {
    const { upstream } = options
    const retryCount = Metric.tagged(retryCounter, "upstream", upstream)
    const rejectedCount = Metric.tagged(rejectedCounter, "upstream", upstream)
    for (const operation of options.operations ?? []) {
      const counters = [retryCount, rejectedCount].map(counter => Metric.tagged(counter, "operation", operation))
      const timed = Metric.tagged(options.durations, "operation", operation)
      const histograms = measuredOutcomes.map(outcome => Metric.tagged(timed, "outcome", outcome))
      MetricTags.register([...counters, ...histograms], tags)
    }
    return {
      measure: (operation, start, outcome) =>
        Effect.flatMap(Monotonic.millis, now => {
          const millis = Math.max(0, now - start)
          const histogram = Metric.tagged(Metric.tagged(options.durations, "operation", operation), "outcome", outcome)
          return Effect.zipRight(
            Metric.update(histogram, millis),
            Effect.annotateLogs(Effect.logDebug("Called an upstream"), { upstream, operation, outcome, millis })
          )
        }),
      retrying: (operation, failure, delayMillis) =>
        Effect.zipRight(
          Metric.increment(Metric.tagged(retryCount, "operation", operation)),
          Effect.annotateLogs(Effect.logDebug("Retrying a call to an upstream"), {
            upstream,
            operation,
            delayMs: Math.round(delayMillis),
            failure: failure.message
          })
        ),
      rejected: operation => error =>
        Effect.zipRight(
          Metric.increment(Metric.tagged(rejectedCount, "operation", operation)),
          new UpstreamFailure({
            operation,
            reason: "circuit_open",
            retryAfterMillis: error.retryAfterMillis,
            message: `The circuit breaker of ${error.upstream} is open; next try in ${Math.ceil(error.retryAfterMillis / 1000)} s`
          })
        ),
      span: operation => [`${upstream}.${operation}`, { attributes: { upstream, operation }, captureStackTrace: false }]
    }
  })

/** The breaker of a part of an upstream, or several breakers in a row. */
export interface Part extends Pick<Breaker.Breaker, "state"> {
  readonly protect: <A, E, R>(
    call: Breaker.Call<A, E, R>,
    verdictOf: typeof verdictOnPart,
    isBackground?: boolean
  ) => Effect.Effect<A, E | Breaker.CircuitOpen, R>
}

/** How a call is made. */
export interface Policy {
  /** The call's name in metrics and spans. */
  readonly operation: string
  /** Whether the call is idempotent, or which failures prove that it had no effect. */
  readonly repeatable: boolean | ((failure: UpstreamFailure) => boolean)
  /** Timeout of a single try. */
  readonly tryTimeout: Duration.DurationInput
  /** Timeout of all tries and the delays between them. */
  readonly timeout: Duration.DurationInput
  /**
   * The breaker of the part of the upstream that is called. Failures count there, and only an unreachable service counts
   * against the upstream.
   */
  readonly part?: Part
  /**
   * The callers that `part` belongs to, one of each kind, such as a tenant and an agent type. Then a failure also counts
   * against the upstream if none of them has failed since the last success: what fails for several callers is not their
   * fault.
   */
  readonly callers?: ReadonlyArray<string>
  /** Whether the call is never the probe of a half-open breaker. */
  readonly isBackground?: boolean
}

/** Runs a call; `attempt` is one try. Fails with the failure of the last try. */
export type Call = <A, R>(
  policy: Policy,
  attempt: Breaker.Call<A, UpstreamFailure, R>
) => Effect.Effect<A, UpstreamFailure, R>

/** What the calls to one upstream share. */
interface Shared {
  readonly breaker: Breaker.Breaker
  readonly budget: Retries.Budget
  readonly telemetry: Telemetry
}

/**
 * Single calls to one upstream; `consecutiveFailures` open its breaker.
 *
 * The breaker is inside the retries, so that it admits and counts each try. A rejected try is not retried, and no retry
 * is awaited once the breaker is open.
 */
const makeCall = ({ breaker, budget, telemetry }: Shared, consecutiveFailures: number): Call => {
  const verdicts = new CallerVerdicts(consecutiveFailures)

  /** The part comes first, so that its rejections take no permit of the upstream. */
  const guarded = <A, R>({ callers, isBackground, part }: Policy, request: Breaker.Call<A, UpstreamFailure, R>) => {
    if (part === undefined) return breaker.protect(request, verdicts.onCall, isBackground)
    const onService = callers === undefined ? verdicts.onPart : verdicts.onCallOf(callers)
    return part.protect(
      Breaker.nested(request, inner => breaker.protect(inner, onService, isBackground)),
      verdictOnPart,
      isBackground
    )
  }

  const mayRetry =
    ({ operation, part, repeatable }: Policy, deadline: number) =>
    (failure: UpstreamFailure, delayMillis: number) =>
      Effect.gen(function* () {
        if (typeof repeatable === "function" && !repeatable(failure)) return false
        if ((yield* Monotonic.millis) + delayMillis >= deadline) return false
        if ((yield* breaker.state) === "open") return false
        if (part !== undefined && (yield* part.state) === "open") return false
        if (!(yield* budget.withdraw)) return false
        yield* telemetry.retrying(operation, failure, delayMillis)
        return true
      })

  return (policy, attempt) => {
    const { operation } = policy
    const tryMillis = Duration.toMillis(policy.tryTimeout)
    return Effect.gen(function* () {
      const deadline = (yield* Monotonic.millis) + Duration.toMillis(policy.timeout)
      let isFirst = true
      const request = (answered: Effect.Effect<void>) =>
        Effect.gen(function* () {
          if (isFirst) yield* budget.deposit
          isFirst = false
          const start = yield* Monotonic.millis
          const timeout = Math.min(tryMillis, deadline - start)
          return yield* Breaker.start(attempt, answered).pipe(
            Effect.timeoutFail({ duration: timeout, onTimeout: timedOut(operation, timeout) }),
            Effect.onExit(exit => telemetry.measure(operation, start, outcomeOf(exit)))
          )
        })
      const oneTry = Effect.catchTag(guarded(policy, request), "CircuitOpen", telemetry.rejected(operation))
      return yield* policy.repeatable !== false
        ? Effect.retry(oneTry, Retries.schedule(mayRetry(policy, deadline)))
        : oneTry
    }).pipe(Effect.withSpan(...telemetry.span(operation)))
  }
}

/** How a stream is opened. */
export interface StreamPolicy {
  /** The stream's name in metrics and spans. */
  readonly operation: string
  /** Timeout from the request to the last element. */
  readonly timeout: Duration.DurationInput
}

/**
 * Opens a stream, which is never retried.
 *
 * For the breaker it is a success with its first elements, and one more failed call if it breaks off later. At the
 * timeout the request is aborted even if the consumer does not pull. That is a failure only before the first elements,
 * since the consumer may be slow.
 */
export type OpenStream = <A>(
  policy: StreamPolicy,
  open: Effect.Effect<Stream.Stream<A, UpstreamFailure>, UpstreamFailure, Scope.Scope>
) => Stream.Stream<A, UpstreamFailure>

/** The end of a stream (none), or its failure. */
type End = Option.Option<UpstreamFailure>

/** Limits a step to a deadline in monotonic milliseconds. Any failure after it is a timeout. */
const before =
  (deadline: number, onTimeout: () => UpstreamFailure) =>
  <A>(step: Effect.Effect<A, End>): Effect.Effect<A, End> =>
    Effect.flatMap(Monotonic.millis, now =>
      step.pipe(
        Effect.timeoutFail({ duration: Math.max(0, deadline - now), onTimeout: () => Option.some(onTimeout()) }),
        Effect.catchAll(end =>
          Effect.flatMap(Monotonic.millis, later => Effect.fail(later >= deadline ? Option.some(onTimeout()) : end))
        )
      )
    )

/** The streams from one upstream. */
const makeStream =
  ({ breaker, budget, telemetry }: Shared): OpenStream =>
  ({ operation, timeout }, open) =>
    Effect.gen(function* () {
      const millis = Duration.toMillis(timeout)
      const start = yield* Monotonic.millis
      const inTime = before(start + millis, timedOut(operation, timeout))
      const scope = yield* Effect.scope
      let sent = false
      let outcome: Outcome = "interrupted"
      yield* Effect.addFinalizer(() => (sent ? telemetry.measure(operation, start, outcome) : Effect.void))

      // Its own scope ends the request at the timeout even if the consumer does not pull.
      const request = yield* Scope.fork(scope, ExecutionStrategy.sequential)
      yield* Effect.forkScoped(Effect.delay(Scope.close(request, Exit.void), millis))

      /** Lasts until the first elements arrive; `undefined` if the stream is empty. */
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
        telemetry.rejected(operation)
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
    }).pipe(Stream.unwrapScoped, Stream.withSpan(...telemetry.span(operation)))

/** Calls to one upstream service. */
export interface Resilience {
  readonly breaker: Breaker.Breaker
  readonly call: Call
  readonly stream: OpenStream
}

/** The name, metrics and settings of an upstream service. */
export interface Options extends TelemetryOptions {
  /** `CircuitBreakerState.defaults` if absent. */
  readonly breaker?: CircuitBreakerState.Settings
  /** `Retries.budgetDefaults` if absent. */
  readonly budget?: Retries.BudgetSettings
}

/** Makes the calls to one upstream service, which share a breaker and a retry budget. */
export const make = (options: Options): Effect.Effect<Resilience, never, Scope.Scope> =>
  Effect.gen(function* () {
    const settings = options.breaker ?? CircuitBreakerState.defaults
    const breaker = yield* Breaker.make(options.upstream, settings)
    const budget = Retries.makeBudget(options.budget)
    const telemetry = yield* makeTelemetry(options)
    return {
      breaker,
      call: makeCall({ breaker, budget, telemetry }, settings.consecutiveFailures),
      stream: makeStream({ breaker, budget, telemetry })
    }
  })
