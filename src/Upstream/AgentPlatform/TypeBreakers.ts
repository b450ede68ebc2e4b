/** The circuit breakers of agent types. */
import { Effect } from "effect"
import type * as MetricTags from "../../base/Observability/MetricTags.ts"
import * as CircuitBreaker from "../Resilience/CircuitBreaker.ts"
import * as CircuitBreakerState from "../Resilience/CircuitBreakerState.ts"
import * as KeyedBreakers from "../Resilience/KeyedBreakers.ts"
import { CallerVerdicts, verdictOnPart } from "../Resilience/UpstreamFailure.ts"
import type { Part } from "../Resilience.ts"

/** Maximum number of types whose callers are kept. Above it those of the least recently created type are dropped. */
const maxTypes = 10_000

/**
 * The breakers that a creation of a type for a tenant passes: the tenant's own for the type, and the one of the type, so
 * that a failure of one type or one tenant does not block others.
 */
export type TypeBreakers = (tenant: string, agentType: string) => Part

/** Breakers that are all closed. */
export const make = (tags: MetricTags.MetricTags): TypeBreakers => {
  const creations = KeyedBreakers.make({ upstream: "agent_creation", label: "creation", tags })
  const types = KeyedBreakers.make({ upstream: "agent_type", label: "agentType", tags })
  const verdicts = new Map<string, CallerVerdicts>()

  const verdictsOf = (agentType: string): CallerVerdicts => {
    const found = verdicts.get(agentType) ?? new CallerVerdicts(CircuitBreakerState.defaults.consecutiveFailures)
    // A map is in order of insertion.
    verdicts.delete(agentType)
    verdicts.set(agentType, found)
    if (verdicts.size > maxTypes) verdicts.delete(verdicts.keys().next().value!)
    return found
  }

  return (tenant, agentType) => {
    const own = creations.of(`${tenant}/${agentType}`)
    const type = types.of(agentType)
    const onType = verdictsOf(agentType).onCallOf([tenant], verdictOnPart)
    return {
      state: Effect.flatMap(own.state, state => (state === "open" ? Effect.succeed(state) : type.state)),
      protect: (call, verdictOf, isBackground) =>
        own.protect(
          CircuitBreaker.nested(call, inner => type.protect(inner, onType, isBackground)),
          verdictOf,
          isBackground
        )
    }
  }
}
