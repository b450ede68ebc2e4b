/**
 * A circuit breaker for each key that fails, such as an instance or a tenant, so that failures of one do not block
 * others.
 */
import * as MetricTags from "../../base/Observability/MetricTags.ts"
import * as CircuitBreaker from "./CircuitBreaker.ts"
import * as CircuitBreakerState from "./CircuitBreakerState.ts"

/** The names and the limit of the breakers. */
export interface Options {
  /** Name in metrics, logs and answers. Metrics have no label for the key. */
  readonly upstream: string
  /** The name of a key in logs. */
  readonly label: string
  /** Maximum number of states, by default 10,000. Above it the least recently used one is dropped. */
  readonly max?: number
  /** The tags of metrics. */
  readonly tags?: MetricTags.MetricTags
}

/** Only consecutive failures open them, so that nothing is kept for keys that work. */
const settings: CircuitBreakerState.Settings = {
  ...CircuitBreakerState.defaults,
  minimumCalls: Number.POSITIVE_INFINITY
}

/** Breakers by key. */
export interface KeyedBreakers {
  readonly of: (key: string) => CircuitBreaker.Breaker
  /** Number of states that are kept. */
  readonly size: () => number
}

const isInitial = (state: CircuitBreakerState.State): boolean => state._tag === "closed" && state.failuresInRow === 0

/** Breakers that are all closed. */
export const make = ({ label, max = 10_000, tags = MetricTags.none, upstream }: Options): KeyedBreakers => {
  const states = new Map<string, CircuitBreakerState.State>()
  /**
   * The epoch of states that are not kept. A verdict must not count for a state that starts after its call was admitted,
   * so a new state starts after the epochs of those that were dropped. When this changes, the verdicts on calls in
   * progress for keys without a state are ignored.
   */
  let firstEpoch = 0
  const report = CircuitBreaker.reportTransitions(upstream, tags)

  const set = (key: string, state: CircuitBreakerState.State): void => {
    // A map is in order of insertion.
    states.delete(key)
    if (isInitial(state)) {
      firstEpoch = Math.max(firstEpoch, state.epoch)
      return
    }
    states.set(key, state._tag === "closed" ? { ...state, calls: [] } : state)
    if (states.size <= max) return
    const [oldest, { epoch }] = states.entries().next().value!
    states.delete(oldest)
    firstEpoch = Math.max(firstEpoch, epoch + 1)
  }

  const get = (key: string): CircuitBreakerState.State =>
    states.get(key) ?? { ...CircuitBreakerState.initial, epoch: firstEpoch }

  return {
    of: key => {
      const ref = { get: get.bind(undefined, key), set: set.bind(undefined, key) }
      return CircuitBreaker.fromRef(upstream, settings, ref, (from, to) => report({ [label]: key }, from, to))
    },
    size: () => states.size
  }
}
