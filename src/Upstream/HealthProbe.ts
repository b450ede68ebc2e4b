/**
 * Health probes of an upstream service by `GET {url}/health`. Probes bypass the breaker, so that they show the current
 * state.
 */
import * as HttpClientRequest from "@effect/platform/HttpClientRequest"
import { Duration, Effect, type Scope } from "effect"
import * as SingleFlight from "../base/SingleFlight.ts"
import * as Monotonic from "../base/Time/Monotonic.ts"
import { UpstreamFailure } from "./Resilience/UpstreamFailure.ts"
import type { UpstreamHttp } from "./UpstreamHttp.ts"

/** The health of an upstream. */
export interface Health {
  /** `ok` for 200 within the timeout, `degraded` for any other status, `unhealthy` without an answer or a connection. */
  readonly status: "ok" | "degraded" | "unhealthy"
  /** Duration of the probe in whole milliseconds. */
  readonly latencyMs: number
  /** The HTTP status, if there was an answer. */
  readonly statusCode?: number
  /** The problem, unless `ok`. */
  readonly error?: string
}

const operation = "health"

const timeout = Duration.seconds(2)

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
        duration: timeout,
        onTimeout: () =>
          new UpstreamFailure({ operation, reason: "timeout", message: `No answer within ${Duration.format(timeout)}` })
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
