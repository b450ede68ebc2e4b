/**
 * Access to the gateway over HTTP: the guard of `GatewayAccess` on both servers, and the port that it calls.
 */
import * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import { Context, Effect, Layer } from "effect"
import type { Guard, Incoming } from "../Http/Endpoints.ts"
import type { IdentityShape, Refusal } from "../Http/Identity.ts"
import { ofPlatform } from "../Http/Incoming.ts"
import { GatewayAccess } from "./Api.ts"

/** Identifies the clients of the gateway. `Authentication/Credentials.ts` implements it. */
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

/** The middleware as @effect/platform runs it. */
export const middlewares: Layer.Layer<GatewayAccess, never, Access> = Layer.effect(
  GatewayAccess,
  Effect.map(Access, ({ admit }) => ({
    // The decoded token is not used: the platform's decoder removes seven characters whatever the scheme.
    jwt: () => Effect.flatMap(HttpServerRequest.HttpServerRequest, request => admit(ofPlatform(request)))
  }))
)
