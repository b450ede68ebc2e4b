/**
 * A stream from an upstream service: opened once, never retried, and ended at a time limit.
 */
import { type Chunk, Effect, ExecutionStrategy, Exit, Option, Scope, Stream } from "effect"
import * as Monotonic from "../Monotonic.ts"
import type { Permit } from "./Resilience/CircuitBreakerState.ts"
import { isFault, type Outcome, outcomeOf, type UpstreamFailure } from "./Resilience/UpstreamFailure.ts"

export interface Parts<A> {
  readonly limitMillis: number
  readonly onTimeout: () => UpstreamFailure
  /** Sends the request; the end of the scope aborts it. */
  readonly open: Effect.Effect<Stream.Stream<A, UpstreamFailure>, UpstreamFailure, Scope.Scope>
  /** Runs the call under the breaker. The call lasts until the first elements arrive. */
  readonly protect: <B>(
    begin: Effect.Effect<B, UpstreamFailure>
  ) => Effect.Effect<readonly [B, Permit], UpstreamFailure>
  /** Run if a stream that has begun fails by the upstream's fault. */
  readonly onBroken: (permit: Permit) => Effect.Effect<void>
  /** Run at the end of each request that was sent. */
  readonly onEnd: (start: number, outcome: Outcome) => Effect.Effect<void>
}

type Pull<A> = Effect.Effect<Chunk.Chunk<A>, Option.Option<UpstreamFailure>>

export const make = <A>(parts: Parts<A>): Stream.Stream<A, UpstreamFailure> =>
  Stream.unwrapScoped(
    Effect.gen(function* () {
      const start = yield* Monotonic.millis
      const deadline = start + parts.limitMillis
      const scope = yield* Effect.scope
      let sent = false
      let outcome: Outcome = "interrupted"
      yield* Effect.addFinalizer(() => (sent ? parts.onEnd(start, outcome) : Effect.void))

      // Its own scope ends the request at the limit even if the consumer does not pull.
      const request = yield* Scope.fork(scope, ExecutionStrategy.sequential)
      yield* Effect.forkScoped(Effect.delay(Scope.close(request, Exit.void), parts.limitMillis))

      // Any failure at the limit is a timeout.
      const inTime = <B>(
        part: Effect.Effect<B, Option.Option<UpstreamFailure>>
      ): Effect.Effect<B, Option.Option<UpstreamFailure>> =>
        Effect.flatMap(Monotonic.millis, now =>
          part.pipe(
            Effect.timeoutFail({
              duration: Math.max(0, deadline - now),
              onTimeout: () => Option.some(parts.onTimeout())
            }),
            Effect.catchAll(error =>
              Effect.flatMap(Monotonic.millis, later =>
                Effect.fail(later >= deadline ? Option.some(parts.onTimeout()) : error)
              )
            )
          )
        )

      const begin = Effect.suspend(() => {
        sent = true
        return Scope.extend(parts.open, request)
      }).pipe(
        Effect.flatMap(body => Scope.extend(Stream.toPull(body), scope)),
        Effect.mapError(Option.some),
        Effect.flatMap(pull => Effect.map(pull, first => ({ pull, first }))),
        inTime,
        Effect.catchAll(
          Option.match({ onNone: () => Effect.succeed(undefined), onSome: failure => Effect.fail(failure) })
        ),
        Effect.onExit(exit =>
          Effect.sync(() => {
            if (Exit.isFailure(exit)) outcome = outcomeOf(exit)
          })
        )
      )

      const [begun, permit] = yield* parts.protect(begin)
      if (begun === undefined) {
        outcome = "ok"
        return Stream.empty
      }
      const { first, pull } = begun
      const rest: Pull<A> = Effect.tapError(inTime(pull), end => {
        outcome = Option.isNone(end) ? "ok" : outcomeOf(Exit.fail(end.value))
        return Option.isSome(end) && end.value.reason !== "timeout" && isFault(end.value)
          ? parts.onBroken(permit)
          : Effect.void
      })
      return Stream.concat(Stream.fromChunk(first), Stream.repeatEffectChunkOption(rest))
    })
  )
