/** The clients of HTTP requests. */
import { Effect } from "effect"
import type { ApiError } from "../../Http/ApiError.ts"
import type { Incoming } from "../../Http/Endpoints.ts"
import type { Caller } from "../Sessions.ts"
import { errorOf, type Failed } from "./Errors.ts"

/** The client of a request, which `GatewayAccess` has identified. */
export const callerOf = ({ identity }: Pick<Incoming, "identity">): Caller => ({
  tenant: identity!.tenant!,
  actor: identity!.actor!
})

/** Runs the work for a request with its client in log lines and spans. */
export const asCaller = <A>(
  incoming: Pick<Incoming, "identity">,
  work: (caller: Caller) => Effect.Effect<A, Failed>
): Effect.Effect<A, ApiError> =>
  Effect.suspend(() => {
    const caller = callerOf(incoming)
    const { actor, tenant } = caller
    return Effect.mapError(work(caller), errorOf).pipe(
      Effect.tapError(({ error }) => Effect.annotateLogs(Effect.logDebug("A request failed"), { reason: error })),
      Effect.annotateLogs({ tenant, actor }),
      Effect.tap(Effect.annotateCurrentSpan("tenant", tenant))
    )
  })
