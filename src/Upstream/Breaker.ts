/**
 * A circuit breaker at work: the pure transitions of `CircuitBreaker`, on monotonic time, seen in metrics and logs.
 */
import { Effect, type Exit, Metric, Schema } from "effect"
import * as Monotonic from "../Monotonic.ts"
import * as CircuitBreaker from "./CircuitBreaker.ts"

/** The breaker is open: the call was rejected at once, and nothing was sent. */
export class CircuitOpen extends Schema.TaggedError<CircuitOpen>()("CircuitOpen", {
  upstream: Schema.String,
  /** The earliest time at which a call may go through, in milliseconds from now. */
  retryAfterMillis: Schema.Number
}) {}

/** A circuit breaker. */
export interface Breaker {
  /** The state at this time. */
  readonly state: Effect.Effect<CircuitBreaker.State["_tag"]>
  /**
   * Runs a call if the breaker lets it, and counts what became of it.
   *
   * However the call ends, its permit is given back: an interrupted one says nothing about the upstream.
   */
  readonly protect: <A, E, R>(
    call: Effect.Effect<A, E, R>,
    verdictOf: (exit: Exit.Exit<A, E>) => CircuitBreaker.Verdict
  ) => Effect.Effect<A, E | CircuitOpen, R>
  /** As `protect`, and hands the permit on, for a verdict on what follows after the call, as on a stream's rest. */
  readonly protectFirst: <A, E, R>(
    call: Effect.Effect<A, E, R>,
    verdictOf: (exit: Exit.Exit<A, E>) => CircuitBreaker.Verdict
  ) => Effect.Effect<readonly [result: A, permit: CircuitBreaker.Permit], E | CircuitOpen, R>
  /** Counts a verdict on a permit. */
  readonly settle: (permit: CircuitBreaker.Permit, verdict: CircuitBreaker.Verdict) => Effect.Effect<void>
}

/**
 * The state of each breaker, by the label `upstream`, as of its last call: a cooldown that passes while nobody calls
 * is noticed by the next call.
 */
export const stateGauge = Metric.gauge("circuit_breaker_state", {
  description: "State of the circuit breaker of an upstream: 0 closed, 1 half open, 2 open"
})

/** Transitions, by the labels `upstream`, `from` and `to`. */
export const transitionCounter = Metric.counter("circuit_breaker_transitions_total", {
  description: "Transitions of the circuit breaker of an upstream",
  incremental: true
})

/** The transitions that there are. */
const possible = [
  ["closed", "open"],
  ["open", "half_open"],
  ["half_open", "closed"],
  ["half_open", "open"]
] as const

const figures = { closed: 0, half_open: 1, open: 2 } as const

/** A closed breaker for an upstream, named as in metrics and logs. */
export const make = (
  upstream: string,
  settings: CircuitBreaker.Settings = CircuitBreaker.defaults
): Effect.Effect<Breaker> =>
  Effect.gen(function* () {
    let state: CircuitBreaker.State = CircuitBreaker.initial
    const gauge = Metric.tagged(stateGauge, "upstream", upstream)
    const transitions = Metric.tagged(transitionCounter, "upstream", upstream)
    yield* Metric.set(gauge, figures.closed)
    for (const [from, to] of possible) Metric.tagged(Metric.tagged(transitions, "from", from), "to", to).register()

    const report = (from: CircuitBreaker.State, to: CircuitBreaker.State) =>
      Effect.zipRight(
        Effect.logInfo(`Circuit breaker ${from._tag} → ${to._tag}`).pipe(
          Effect.annotateLogs({
            upstream,
            ...(to._tag === "open" ? { cooldownMs: to.cooldownMillis } : {})
          })
        ),
        Effect.zipRight(
          Metric.set(gauge, figures[to._tag]),
          Metric.update(Metric.tagged(Metric.tagged(transitions, "from", from._tag), "to", to._tag), 1)
        )
      )

    /** One synchronous step, so that simultaneous calls cannot see the same state twice; reported afterwards. */
    const step = <A>(transition: (state: CircuitBreaker.State, now: number) => readonly [A, CircuitBreaker.State]) =>
      Effect.flatMap(Monotonic.millis, now => {
        const passed = [state]
        for (;;) {
          const next = CircuitBreaker.elapse(state, now, settings)
          if (next === state) break
          state = next
          passed.push(state)
        }
        const [result, after] = transition(state, now)
        state = after
        if (after._tag !== passed.at(-1)?._tag) passed.push(after)
        return Effect.as(
          Effect.forEach(passed.slice(1), (to, index) => report(passed[index]!, to), { discard: true }),
          result
        )
      })

    const admit = Effect.flatMap(
      step((state, now) => CircuitBreaker.admit(state, now, settings)),
      admission =>
        admission._tag === "admitted"
          ? Effect.succeed(admission.permit)
          : new CircuitOpen({ upstream, retryAfterMillis: admission.retryAfterMillis })
    )

    const settle: Breaker["settle"] = (permit, verdict) =>
      step((state, now) => [undefined, CircuitBreaker.settle(state, permit, verdict, now, settings)])

    const protectFirst: Breaker["protectFirst"] = (call, verdictOf) =>
      Effect.uninterruptibleMask(restore =>
        Effect.flatMap(admit, permit =>
          restore(call).pipe(
            Effect.onExit(exit => settle(permit, verdictOf(exit))),
            Effect.map(result => [result, permit] as const)
          )
        )
      )

    return {
      state: step(state => [state._tag, state]),
      protect: (call, verdictOf) => Effect.map(protectFirst(call, verdictOf), ([result]) => result),
      protectFirst,
      settle
    }
  })
