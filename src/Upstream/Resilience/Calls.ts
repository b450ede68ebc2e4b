/**
 * Single calls to an upstream service.
 *
 * The breaker is inside the retries, so that it admits and counts each try. A rejected try is not retried, and no retry
 * is awaited once the breaker is open.
 */
import { Duration, Effect } from "effect"
import * as Monotonic from "../../Monotonic.ts"
import { CallerVerdicts } from "./CallerVerdicts.ts"
import type { Breaker, CircuitOpen } from "./CircuitBreaker.ts"
import * as Retries from "./Retries.ts"
import { type Telemetry, timedOut } from "./Telemetry.ts"
import { outcomeOf, type UpstreamFailure, verdictOnPart } from "./UpstreamFailure.ts"

/** The breaker of a part of an upstream, or several breakers in a row. */
export interface Part extends Pick<Breaker, "state"> {
  readonly protect: <A, E, R>(
    call: Effect.Effect<A, E, R>,
    verdictOf: typeof verdictOnPart,
    isBackground?: boolean
  ) => Effect.Effect<A, E | CircuitOpen, R>
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
export interface Options {
  readonly breaker: Breaker
  readonly budget: Retries.Budget
  readonly telemetry: Telemetry
  /** Consecutive failures that open the breaker. */
  readonly consecutiveFailures: number
}

/** The calls to one upstream. */
export const make = ({ breaker, budget, consecutiveFailures, telemetry }: Options): Call => {
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
          Effect.timeoutFail({ duration: timeout, onTimeout: timedOut(operation, timeout) }),
          Effect.onExit(exit => telemetry.measure(operation, start, outcomeOf(exit)))
        )
      })
      const oneTry = Effect.catchTag(guarded(policy, request), "CircuitOpen", telemetry.rejected(operation))
      return yield* policy.repeatable ? Effect.retry(oneTry, Retries.schedule(mayRetry(policy, deadline))) : oneTry
    }).pipe(Effect.withSpan(...telemetry.span(operation)))
  }
}
