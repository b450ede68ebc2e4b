/**
 * Calls to an upstream service: with timeouts, retries within a budget, a circuit breaker, metrics and a span.
 */
import { Effect, type Scope } from "effect"
import * as Calls from "./Resilience/Calls.ts"
import * as Breaker from "./Resilience/CircuitBreaker.ts"
import * as CircuitBreakerState from "./Resilience/CircuitBreakerState.ts"
import * as Retries from "./Resilience/Retries.ts"
import * as Streams from "./Resilience/Streams.ts"
import * as Telemetry from "./Resilience/Telemetry.ts"

export type { Policy } from "./Resilience/Calls.ts"
export type { StreamPolicy } from "./Resilience/Streams.ts"
export { durations } from "./Resilience/Telemetry.ts"

/** Calls to one upstream service. */
export interface Resilience {
  readonly breaker: Breaker.Breaker
  readonly call: Calls.Call
  readonly stream: Streams.OpenStream
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
    const { consecutiveFailures } = settings
    return {
      breaker,
      call: Calls.make({ breaker, budget, telemetry, consecutiveFailures }),
      stream: Streams.make({ breaker, budget, telemetry })
    }
  })
