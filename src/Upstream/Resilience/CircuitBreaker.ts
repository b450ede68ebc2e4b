/**
 * A circuit breaker with state: the pure transitions of `CircuitBreakerState` on monotonic time, with metrics and logs.
 */
import { Effect, type Exit, Metric, Schema, type Scope } from "effect"
import * as MetricTags from "../../base/Observability/MetricTags.ts"
import * as Supervision from "../../base/Supervision.ts"
import * as Monotonic from "../../base/Time/Monotonic.ts"
import * as CircuitBreakerState from "./CircuitBreakerState.ts"

/** The call was rejected by an open breaker, and nothing was sent. */
export class CircuitOpen extends Schema.TaggedError<CircuitOpen>()("CircuitOpen", {
  upstream: Schema.String,
  /** The earliest time at which a call may go through, in milliseconds from now. */
  retryAfterMillis: Schema.Number
}) {}

/**
 * A call to an upstream. One that lasts, such as a stream, runs `answered` once the upstream has answered, which ends an
 * outage; its verdict counts at its end.
 */
export type Call<A, E, R> = Effect.Effect<A, E, R> | ((answered: Effect.Effect<void>) => Effect.Effect<A, E, R>)

/** Starts a call. */
export const start = <A, E, R>(call: Call<A, E, R>, answered: Effect.Effect<void>): Effect.Effect<A, E, R> =>
  Effect.isEffect(call) ? call : call(answered)

/** A call within a breaker inside another one: its answer counts for both. */
export const nested =
  <A, E, R, B>(call: Call<A, E, R>, within: (call: Call<A, E, R>) => B) =>
  (outer: Effect.Effect<void>): B =>
    within(inner => start(call, Effect.zipRight(inner, outer)))

/** A circuit breaker. */
export interface Breaker {
  /** The current state. */
  readonly state: Effect.Effect<CircuitBreakerState.State["_tag"]>
  /**
   * Runs a call if the breaker admits it, and counts its verdict. A background call, such as a reconnection, is never
   * the probe of a half-open breaker.
   *
   * The permit is always returned. An interrupted call says nothing about the upstream.
   */
  readonly protect: <A, E, R>(
    call: Call<A, E, R>,
    verdictOf: (exit: Exit.Exit<A, E>) => CircuitBreakerState.Verdict,
    isBackground?: boolean
  ) => Effect.Effect<A, E | CircuitOpen, R>
  /** `protect` that also returns the permit, for a verdict on what follows the call, such as the rest of a stream. */
  readonly protectWithPermit: <A, E, R>(
    call: Call<A, E, R>,
    verdictOf: (exit: Exit.Exit<A, E>) => CircuitBreakerState.Verdict,
    isBackground?: boolean
  ) => Effect.Effect<readonly [result: A, permit: CircuitBreakerState.Permit], E | CircuitOpen, R>
  /** Counts a verdict on a permit. */
  readonly settle: (permit: CircuitBreakerState.Permit, verdict: CircuitBreakerState.Verdict) => Effect.Effect<void>
}

/** The state of each breaker, by the label `upstream`. It changes with time, even without calls. */
export const stateGauge = Metric.gauge("circuit_breaker_state", {
  description: "State of the circuit breaker of an upstream: 0 closed, 1 half open, 2 open"
})

/** Transitions, by the labels `upstream`, `from` and `to`. */
export const transitionCounter = Metric.counter("circuit_breaker_transitions_total", {
  description: "Transitions of the circuit breaker of an upstream",
  incremental: true
})

const possible = [
  ["closed", "open"],
  ["open", "half_open"],
  ["half_open", "closed"],
  ["half_open", "open"]
] as const

const figures = { closed: 0, half_open: 1, open: 2 } as const

/** Where the state of a breaker is kept. */
export interface StateRef {
  readonly get: () => CircuitBreakerState.State
  readonly set: (state: CircuitBreakerState.State) => void
}

type OnTransition = (from: CircuitBreakerState.State, to: CircuitBreakerState.State) => Effect.Effect<void>

/** A breaker whose state is kept elsewhere. `onTransition` is run after each transition. */
export const fromRef = (
  upstream: string,
  settings: CircuitBreakerState.Settings,
  { get, set }: StateRef,
  onTransition: OnTransition
): Breaker => {
  /** Updates the state synchronously, so that no two calls see the same one, and reports transitions afterwards. */
  const modify = <A>(
    transition: (state: CircuitBreakerState.State, now: number) => readonly [A, CircuitBreakerState.State]
  ) =>
    Effect.flatMap(Monotonic.millis, now => {
      const before = get()
      const due = CircuitBreakerState.at(before, now)
      const [result, after] = transition(due, now)
      set(after)
      const report = (from: CircuitBreakerState.State, to: CircuitBreakerState.State) =>
        from._tag === to._tag ? Effect.void : onTransition(from, to)
      return Effect.as(Effect.zipRight(report(before, due), report(due, after)), result)
    })

  const admit = (isBackground = false) =>
    Effect.flatMap(
      modify((state, now) => CircuitBreakerState.admit(state, now, settings, isBackground)),
      admission =>
        admission._tag === "admitted"
          ? Effect.succeed(admission.permit)
          : new CircuitOpen({ upstream, retryAfterMillis: admission.retryAfterMillis })
    )

  const answered = (permit: CircuitBreakerState.Permit) =>
    modify((state, now) => [undefined, CircuitBreakerState.answered(state, permit, now)])

  const settle: Breaker["settle"] = (permit, verdict) =>
    modify((state, now) => [undefined, CircuitBreakerState.settle(state, permit, verdict, now, settings)])

  const protectWithPermit: Breaker["protectWithPermit"] = (call, verdictOf, isBackground) =>
    Effect.uninterruptibleMask(restore =>
      Effect.flatMap(admit(isBackground), permit =>
        restore(start(call, answered(permit))).pipe(
          Effect.onExit(exit => settle(permit, verdictOf(exit))),
          Effect.map(result => [result, permit] as const)
        )
      )
    )

  return {
    state: modify(state => [state._tag, state]),
    protect: (...call) => Effect.map(protectWithPermit(...call), ([result]) => result),
    protectWithPermit,
    settle
  }
}

/** Registers the transitions of an upstream's breakers with 0, and returns how to log and count one. */
export const reportTransitions = (upstream: string, tags: MetricTags.MetricTags) => {
  const transitions = Metric.tagged(transitionCounter, "upstream", upstream)
  const series = possible.map(([from, to]) => Metric.tagged(Metric.tagged(transitions, "from", from), "to", to))
  MetricTags.register(series, tags)
  return (annotations: Readonly<Record<string, unknown>>, ...[from, to]: Parameters<OnTransition>) =>
    Effect.logInfo(`Circuit breaker ${from._tag} → ${to._tag}`).pipe(
      Effect.annotateLogs({ upstream, ...annotations }),
      Effect.zipRight(Metric.update(Metric.tagged(Metric.tagged(transitions, "from", from._tag), "to", to._tag), 1))
    )
}

/** A closed breaker, with the upstream's name in metrics and logs. Transitions that are due by time are made in time. */
export const make = (
  upstream: string,
  settings: CircuitBreakerState.Settings = CircuitBreakerState.defaults
): Effect.Effect<Breaker, never, Scope.Scope> =>
  Effect.gen(function* () {
    let state: CircuitBreakerState.State = CircuitBreakerState.initial
    const gauge = Metric.tagged(stateGauge, "upstream", upstream)
    yield* Metric.set(gauge, figures.closed)
    const report = reportTransitions(upstream, yield* MetricTags.current)
    const rescheduled = yield* Effect.makeLatch(false)

    const ref: StateRef = {
      get: () => state,
      set: next => {
        const changes = CircuitBreakerState.nextChange(next) !== CircuitBreakerState.nextChange(state)
        state = next
        if (changes) rescheduled.unsafeOpen()
      }
    }
    const breaker = fromRef(upstream, settings, ref, (from, to) =>
      Effect.zipRight(
        Metric.set(gauge, figures[to._tag]),
        report(to._tag === "open" ? { cooldownMs: to.cooldownMillis } : {}, from, to)
      )
    )

    /** Waits until the next transition is due, or until its time changes. */
    const nextTransition = Effect.gen(function* () {
      rescheduled.unsafeClose()
      const next = CircuitBreakerState.nextChange(state)
      if (next === undefined) return yield* rescheduled.await
      const left = next - (yield* Monotonic.millis)
      if (left > 0) yield* Effect.raceFirst(Effect.sleep(Math.ceil(left)), rescheduled.await)
      yield* breaker.state
    })
    yield* Supervision.forkScoped(`the circuit breaker of ${upstream}`, Effect.forever(nextTransition))

    return breaker
  })
