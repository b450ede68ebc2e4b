/**
 * Streams from an upstream service. None is ever retried.
 */
import { Duration, Effect, ExecutionStrategy, Exit, Option, Scope, Stream } from "effect"
import * as Monotonic from "../../Monotonic.ts"
import type { Breaker } from "./CircuitBreaker.ts"
import type { Budget } from "./Retries.ts"
import { type Telemetry, timedOut } from "./Telemetry.ts"
import { isFault, type Outcome, outcomeOf, type UpstreamFailure, verdictOf } from "./UpstreamFailure.ts"

/** How a stream is opened. */
export interface StreamPolicy {
  /** The stream's name in metrics and spans. */
  readonly operation: string
  /** Timeout from the request to the last element. */
  readonly timeout: Duration.DurationInput
}

/**
 * Opens a stream.
 *
 * For the breaker it is a success with its first elements, and one more failed call if it breaks off later. At the
 * timeout the request is aborted even if the consumer does not pull. That is a failure only before the first elements,
 * since the consumer may be slow.
 */
export type OpenStream = <A>(
  policy: StreamPolicy,
  open: Effect.Effect<Stream.Stream<A, UpstreamFailure>, UpstreamFailure, Scope.Scope>
) => Stream.Stream<A, UpstreamFailure>

/** What the streams of one upstream share. */
export interface Options {
  readonly breaker: Breaker
  readonly budget: Budget
  readonly telemetry: Telemetry
}

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
export const make =
  ({ breaker, budget, telemetry }: Options): OpenStream =>
  ({ operation, timeout }, open) =>
    Effect.gen(function* () {
      const millis = Duration.toMillis(timeout)
      const start = yield* Monotonic.millis
      const inTime = before(start + millis, timedOut(operation, timeout))
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
