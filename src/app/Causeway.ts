/**
 * The parts of this service in an application: the key-value store, the cluster routes, health, metrics, descriptions and
 * the gateway, each where the application's own api has its group.
 */
import * as HttpRouter from "@effect/platform/HttpRouter"
import * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import { Effect, Layer } from "effect"
import { GatewayAccess } from "../Gateway/Api.ts"
import { Access } from "../Gateway/Clients/Access.ts"
import * as Auth from "../Http/Auth/Auth.ts"
import { ofPlatform } from "../Http/Incoming.ts"
import * as GroupLayer from "../Http/Platform/GroupLayer.ts"
import * as PlatformMiddleware from "../Http/Platform/Middleware.ts"
import { routerConfig } from "../Http/Router.ts"
import * as Body from "../Kv/Body.ts"
import type { Needed, Options, PlatformLayer } from "./Causeway/Options.ts"
import { groups, partsOf } from "./Causeway/Parts.ts"
import { type Erased, handlersIn, none, reflected, services } from "./Causeway/Services.ts"

export { layerEdge } from "./Causeway/EdgeLayer.ts"
export type { EdgeOptions, Needed, NeededByEdge, Options, Requirements, Services } from "./Causeway/Options.ts"

/** `GatewayAccess` as @effect/platform runs it, for groups that are mounted by hand. */
export const gatewayAccess: Layer.Layer<GatewayAccess, never, Access> = Layer.effect(
  GatewayAccess,
  Effect.map(Access, ({ admit }) => ({
    // The decoded token is not used: the platform's decoder removes seven characters whatever the scheme.
    jwt: () => Effect.flatMap(HttpServerRequest.HttpServerRequest, request => admit(ofPlatform(request)))
  }))
)

/**
 * Implements our groups in an application of @effect/platform, and provides the services behind them to its other
 * handlers.
 *
 * Every failure of the application is answered as `{"error": …}`, and its router reads names of entries as they are.
 * Layers of metric tags go around the whole application; see `MetricTags`.
 */
export const layer = <const O extends Options>(options: O & Needed<O["api"]>): PlatformLayer<O> => {
  const api = reflected(options.api)
  const parts = partsOf(api)
  const implementations = handlersIn(api, parts).map(
    ([name, handlers]): Erased =>
      GroupLayer.layer(api as never, groups[name as keyof typeof groups] as never, handlers as never)
  )
  const implemented = implementations.reduce((all, one) => Layer.merge(all, one), none)
  const mounted: Erased = implemented.pipe(
    Layer.provide(options.identity === undefined ? none : Auth.middlewares),
    Layer.provide(parts.has("sessions") || parts.has("agUi") || parts.has("chat") ? gatewayAccess : none),
    Layer.provide(Body.layer),
    Layer.provideMerge(services(options, parts))
  )
  const router = Layer.merge(PlatformMiddleware.errorLayer(api), HttpRouter.setRouterConfig(routerConfig))
  return Layer.merge(mounted, router) as PlatformLayer<O>
}
