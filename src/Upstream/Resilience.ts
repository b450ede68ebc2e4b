/**
 * Calls to an upstream service: with timeouts, retries within a budget, a circuit breaker, metrics and a span.
 */
import { Duration, Effect, ExecutionStrategy, Exit, Option, Scope, Stream } from "effect"
import * as Monotonic from "../base/Monotonic.ts"
import { CallerVerdicts } from "./Resilience/CallerVerdicts.ts"
import * as Breaker from "./Resilience/CircuitBreaker.ts"
import * as CircuitBreakerState from "./Resilience/CircuitBreakerState.ts"
import * as Retries from "./Resilience/Retries.ts"
import * as Telemetry from "./Resilience/Telemetry.ts"
import {
  isFault,
  type Outcome,
  outcomeOf,
  type UpstreamFailure,
  verdictOf,
  verdictOnPart
} from "./Resilience/UpstreamFailure.ts"

export { durations } from "./Resilience/Telemetry.ts"

/** The breaker of a part of an upstream, or several breakers in a row. */
export interface Part extends Pick<Breaker.Breaker, "state"> {
  readonly protect: <A, E, R>(
    call: Effect.Effect<A, E, R>,
    verdictOf: typeof verdictOnPart,
    isBackground?: boolean
  ) => Effect.Effect<A, E | Breaker.CircuitOpen, R>
}

/** How a call is made. */
export interface Policy {
  /** The call's name in metrics and spans. */
  readonly operation: string
  /** Whether the call is idempotent. */
  readonly repeatable: boolean
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
  attempt: Effect.Effect<A, UpstreamFailure, R>
) => Effect.Effect<A, UpstreamFailure, R>

/** What the calls to one upstream share. */
interface Shared {
  readonly breaker: Breaker.Breaker
  readonly budget: Retries.Budget
  readonly telemetry: Telemetry.Telemetry
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
  const guarded = <A, R>({ callers, isBackground, part }: Policy, request: Effect.Effect<A, UpstreamFailure, R>) => {
    if (part === undefined) return breaker.protect(request, verdicts.onCall, isBackground)
    const onService = callers === undefined ? verdicts.onPart : verdicts.onCallOf(callers)
    return part.protect(breaker.protect(request, onService, isBackground), verdictOnPart, isBackground)
  }

  const mayRetry =
    ({ operation, part }: Policy, deadline: number) =>
    (failure: UpstreamFailure, delayMillis: number) =>
      Effect.gen(function* () {
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
      const request = Effect.gen(function* () {
        if (isFirst) yield* budget.deposit
        isFirst = false
        const start = yield* Monotonic.millis
        const timeout = Math.min(tryMillis, deadline - start)
        return yield* attempt.pipe(
          Effect.timeoutFail({ duration: timeout, onTimeout: Telemetry.timedOut(operation, timeout) }),
          Effect.onExit(exit => telemetry.measure(operation, start, outcomeOf(exit)))
        )
      })
      const oneTry = Effect.catchTag(guarded(policy, request), "CircuitOpen", telemetry.rejected(operation))
      return yield* policy.repeatable ? Effect.retry(oneTry, Retries.schedule(mayRetry(policy, deadline))) : oneTry
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
      const inTime = before(start + millis, Telemetry.timedOut(operation, timeout))
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
export interface Options extends Telemetry.Options {
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
    const telemetry = yield* Telemetry.make(options)
    return {
      breaker,
      call: makeCall({ breaker, budget, telemetry }, settings.consecutiveFailures),
      stream: makeStream({ breaker, budget, telemetry })
    }
  })
