/**
 * A circuit breaker for each agent instance that fails, and for each tenant whose creations do, so that one tenant keeps
 * nobody from what others have.
 */
import { Effect } from "effect"
import * as Breaker from "./Breaker.ts"
import * as CircuitBreaker from "./CircuitBreaker.ts"

/** What breakers are for. */
export interface Kind {
  /** Name in metrics, logs and answers; the single ones have no label of their own there. */
  readonly upstream: string
  /** What an id is called in logs. */
  readonly label: string
}

/** Calls to an instance. */
export const calls: Kind = { upstream: "agent_instance", label: "instanceId" }

/** Giving an instance back. Whoever cannot be called is given back all the same. */
export const returns: Kind = { upstream: "agent_instance_cleanup", label: "instanceId" }

/** Creations of a tenant. */
export const creations: Kind = { upstream: "agent_creation", label: "tenant" }

/** Those that fail and are remembered; beyond, the one whose last call is longest ago is forgotten. */
const most = 10_000

/** They open at failures in a row alone: of what works nothing is remembered. */
const settings: CircuitBreaker.Settings = { ...CircuitBreaker.defaults, minimumCalls: Number.POSITIVE_INFINITY }

/** Breakers by id. */
export interface InstanceBreakers {
  readonly of: (id: string) => Breaker.Breaker
  /** Ids that are remembered. */
  readonly size: () => number
}

const isSpotless = (state: CircuitBreaker.State): boolean => state._tag === "closed" && state.failuresInRow === 0

/** Breakers that are all closed. */
export const make = ({ label, upstream }: Kind = calls, limit: number = most): InstanceBreakers => {
  const states = new Map<string, CircuitBreaker.State>()
  const count = Breaker.countTransitions(upstream)

  const set = (id: string, state: CircuitBreaker.State): void => {
    // Whatever is set last stands last.
    states.delete(id)
    if (isSpotless(state)) return
    states.set(id, state._tag === "closed" ? { ...state, calls: [] } : state)
    if (states.size > limit) states.delete(states.keys().next().value!)
  }

  return {
    of: id =>
      Breaker.over(upstream, settings, {
        get: () => states.get(id) ?? CircuitBreaker.initial,
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
