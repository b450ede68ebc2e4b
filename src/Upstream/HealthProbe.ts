/**
 * Whether an upstream service answers `GET {url}/health`. Probes do not pass a breaker, so that they tell the current
 * state.
 */
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import { Duration, Effect, type Scope } from "effect"
import * as Monotonic from "../Monotonic.ts"
import * as SingleFlight from "../SingleFlight.ts"
import { UpstreamFailure } from "./Resilience/UpstreamFailure.ts"
import type { UpstreamHttp } from "./UpstreamHttp.ts"

/** The health of an upstream. */
export interface Health {
  /** 200 in time is `ok`, any other status `degraded`, no answer in time or no connection `unhealthy`. */
  readonly status: "ok" | "degraded" | "unhealthy"
  /** Whole milliseconds of the probe. */
  readonly latencyMs: number
  /** The HTTP status, if there was an answer. */
  readonly statusCode?: number
  /** What is wrong, unless `ok`. */
  readonly error?: string
}

const operation = "health"

const limit = Duration.seconds(2)

const ofStatus = (status: number): Omit<Health, "latencyMs"> =>
  status === 200
    ? { status: "ok", statusCode: status }
    : { status: "degraded", statusCode: status, error: `GET /health answered ${status}` }

/** How long a result is shared, in milliseconds. */
const sharedMillis = 1000

/** Shares a result among the callers within a second of its start. */
export const shared = <A, R>(
  compute: Effect.Effect<A, never, R>
): Effect.Effect<Effect.Effect<A, never, R>, never, Scope.Scope> =>
  SingleFlight.sharedFor(sharedMillis, Monotonic.millis, compute)

/** A probe that is {@link shared}. */
export const make = (http: UpstreamHttp): Effect.Effect<Effect.Effect<Health>, never, Scope.Scope> =>
  Effect.suspend(() => {
    // The body is not read: it may stall.
    const probe = http.status(operation, HttpClientRequest.get("/health")).pipe(
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
      return { ...found, latencyMs: Math.max(0, Math.round((yield* Monotonic.millis) - start)) }
    })
    return shared(timed)
  })
