/**
 * A circuit breaker for each agent instance that fails, and for each tenant whose creations fail, so that failures for
 * one tenant do not block others.
 */
import { Effect } from "effect"
import * as Breaker from "./CircuitBreaker.ts"
import * as CircuitBreakerState from "./CircuitBreakerState.ts"

/** The calls that breakers protect. */
export interface Kind {
  /** Name in metrics, logs and answers. Metrics have no label for the id. */
  readonly upstream: string
  /** The name of an id in logs. */
  readonly label: string
}

/** Calls to an instance. */
export const calls: Kind = { upstream: "agent_instance", label: "instanceId" }

/** Stopping an instance, which goes on if it cannot be called. */
export const cleanups: Kind = { upstream: "agent_instance_cleanup", label: "instanceId" }

/** Creations of a tenant. */
export const creations: Kind = { upstream: "agent_creation", label: "tenant" }

/** Most states that are kept; of more, the least recently used one is dropped. */
const most = 10_000

/** Only consecutive failures open them, so that nothing is kept for ids that work. */
const settings: CircuitBreakerState.Settings = {
  ...CircuitBreakerState.defaults,
  minimumCalls: Number.POSITIVE_INFINITY
}

/** Breakers by id. */
export interface KeyedBreakers {
  readonly of: (id: string) => Breaker.Breaker
  /** Number of states that are kept. */
  readonly size: () => number
}

const isInitial = (state: CircuitBreakerState.State): boolean => state._tag === "closed" && state.failuresInRow === 0

/** Breakers that are all closed. */
export const make = ({ label, upstream }: Kind = calls, limit: number = most): KeyedBreakers => {
  const states = new Map<string, CircuitBreakerState.State>()
  const count = Breaker.countTransitions(upstream)

  const set = (id: string, state: CircuitBreakerState.State): void => {
    // A map is in order of insertion.
    states.delete(id)
    if (isInitial(state)) return
    states.set(id, state._tag === "closed" ? { ...state, calls: [] } : state)
    if (states.size > limit) states.delete(states.keys().next().value!)
  }

  return {
    of: id =>
      Breaker.fromCell(upstream, settings, {
        get: () => states.get(id) ?? CircuitBreakerState.initial,
        set: state => set(id, state),
        report: (from, to) =>
          Effect.zipRight(
            Effect.annotateLogs(Effect.logInfo(`Circuit breaker ${from._tag} → ${to._tag}`), { upstream, [label]: id }),
            count(from, to)
          )
      }),
    size: () => states.size
  }
}
