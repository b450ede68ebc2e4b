/**
 * Whether an upstream service answers `GET {url}/health`: never through a breaker, so that a probe tells what is the
 * case now.
 */
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import { Deferred, Duration, Effect, FiberId, type Scope } from "effect"
import * as Monotonic from "../Monotonic.ts"
import type { Exchange } from "./Exchange.ts"
import { UpstreamFailure } from "./UpstreamFailure.ts"

/** How an upstream is, as the specification of the gateway classifies it. */
export interface Health {
  /** 200 in time is `ok`, any other status `degraded`, no answer in time or no connection `unhealthy`. */
  readonly status: "ok" | "degraded" | "unhealthy"
  /** Milliseconds that the probe took. */
  readonly latencyMs: number
  /** The HTTP status, where there was an answer. */
  readonly statusCode?: number
  /** What is wrong, when not `ok`. */
  readonly error?: string
}

const operation = "health"

const limit = Duration.seconds(2)

const ofStatus = (status: number): Omit<Health, "latencyMs"> =>
  status === 200
    ? { status: "ok", statusCode: status }
    : { status: "degraded", statusCode: status, error: `GET /health answered ${status}` }

/** How long what was found is good for, in milliseconds. */
const goodFor = 1000

/**
 * Has callers within a second of a look's start share what it finds.
 *
 * It runs in a fiber of its own, in the context of whoever came first (so in their span), and a caller who leaves
 * takes nothing from the others.
 */
export const shared = <A, R>(
  look: Effect.Effect<A, never, R>
): Effect.Effect<Effect.Effect<A, never, R>, never, Scope.Scope> =>
  Effect.map(Effect.scope, scope => {
    let running: { readonly startedAt: number; readonly found: Deferred.Deferred<A> } | undefined
    return Effect.uninterruptibleMask(restore =>
      Effect.flatMap(Monotonic.millis, now => {
        if (running !== undefined && now - running.startedAt < goodFor) return restore(Deferred.await(running.found))
        const found = Deferred.unsafeMake<A>(FiberId.none)
        running = { startedAt: now, found }
        // The fiber is not to inherit what keeps its start from being interrupted.
        const looking = Effect.forkIn(Effect.interruptible(Effect.intoDeferred(look, found)), scope)
        return Effect.zipRight(looking, restore(Deferred.await(found)))
      })
    )
  })

/** A probe that is {@link shared}. */
export const make = (exchange: Exchange): Effect.Effect<Effect.Effect<Health>, never, Scope.Scope> =>
  Effect.suspend(() => {
    // The status line says all: a body may stall, and is not read.
    const probe = exchange.status(operation, HttpClientRequest.get("/health")).pipe(
      Effect.timeoutFail({
        duration: limit,
        onTimeout: () =>
          new UpstreamFailure({ operation, reason: "timeout", message: `No answer within ${Duration.format(limit)}` })
      }),
      Effect.match({
        onSuccess: ofStatus,
        onFailure: ({ message }) => ({ status: "unhealthy" as const, error: message })
      })
    )
    const timed = Effect.gen(function* () {
      const start = yield* Monotonic.millis
      const found = yield* probe
      return { ...found, latencyMs: Math.max(0, (yield* Monotonic.millis) - start) }
    })
    return shared(timed)
  })
