/**
 * A circuit breaker for each agent instance that fails, so that the instances of one tenant keep nobody from others.
 */
import { Effect } from "effect"
import * as Breaker from "./Breaker.ts"
import * as CircuitBreaker from "./CircuitBreaker.ts"

/** Name in metrics, logs and answers; instances have no label of their own there. */
export const upstream = "agent_instance"

/** Instances that fail and are remembered; beyond, the one whose last call is longest ago is forgotten. */
const most = 10_000

/** It opens at failures in a row alone: of an instance that works nothing is remembered. */
const settings: CircuitBreaker.Settings = { ...CircuitBreaker.defaults, minimumCalls: Number.POSITIVE_INFINITY }

/** Breakers by instance. */
export interface InstanceBreakers {
  readonly of: (instanceId: string) => Breaker.Breaker
  /** Instances that are remembered. */
  readonly size: () => number
}

const isSpotless = (state: CircuitBreaker.State): boolean => state._tag === "closed" && state.failuresInRow === 0

/** Breakers that are all closed. */
export const make = (limit: number = most): InstanceBreakers => {
  const states = new Map<string, CircuitBreaker.State>()
  const count = Breaker.countTransitions(upstream)

  const set = (instanceId: string, state: CircuitBreaker.State): void => {
    // Whatever is set last stands last.
    states.delete(instanceId)
    if (isSpotless(state)) return
    states.set(instanceId, state._tag === "closed" ? { ...state, calls: [] } : state)
    if (states.size > limit) states.delete(states.keys().next().value!)
  }

  return {
    of: instanceId =>
      Breaker.over(upstream, settings, {
        get: () => states.get(instanceId) ?? CircuitBreaker.initial,
        set: state => set(instanceId, state),
        report: (from, to) =>
          Effect.zipRight(
            Effect.annotateLogs(Effect.logInfo(`Circuit breaker ${from._tag} → ${to._tag}`), { upstream, instanceId }),
            count(from, to)
          )
      }),
    size: () => states.size
  }
}
