/**
 * Access to the gateway over HTTP: the guard of `GatewayAccess`, and the port that it calls.
 */
import { Context, Effect } from "effect"
import type { Guard, Incoming } from "../../Http/Endpoints.ts"
import type { IdentityShape, Refusal } from "../../Http/Identity.ts"
import { GatewayAccess } from "../Api.ts"

/** Identifies the clients of the gateway. `Credentials.ts` implements it. */
export class Access extends Context.Tag("causeway/GatewayClientAccess")<
  Access,
  {
    /** The sender of a request: its tenant, its actor, and when its credential expires. */
    readonly admit: (request: Incoming) => Effect.Effect<IdentityShape, Refusal>
  }
>() {}

/** The middleware as `Http/Edge` runs it. */
export const guards: Effect.Effect<ReadonlyArray<Guard<GatewayAccess>>, never, Access> = Effect.map(
  Access,
  ({ admit }) => [{ middleware: GatewayAccess, admit }]
)
