/**
 * The parts of this service in an application: the key-value store, the cluster routes, health, metrics, descriptions and
 * the gateway, each where the application's own api has its group.
 */
import type * as HttpApi from "@effect/platform/HttpApi"
import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as HttpRouter from "@effect/platform/HttpRouter"
import { Duration, Effect, Layer, Option } from "effect"
import * as Auth from "./Auth/Auth.ts"
import type { EdgeLayer, EdgeOptions, Needed, NeededByEdge, Options, PlatformLayer } from "./Causeway/Options.ts"
import { groups, partsOf, pathIn } from "./Causeway/Parts.ts"
import * as Endpoints from "./Endpoints.ts"
import { endpoints as gateway } from "./Gateway/Endpoints.ts"
import * as Health from "./Health/Health.ts"
import { NotFound } from "./Http/ApiError.ts"
import * as Edge from "./Http/Edge/Edge.ts"
import { admits, FeedOrigins } from "./Http/Origin.ts"
import * as GroupLayer from "./Http/Platform/GroupLayer.ts"
import * as PlatformMiddleware from "./Http/Platform/Middleware.ts"
import { pathOf, routerConfig } from "./Http/Router.ts"
import * as NodeServer from "./Http/Server/NodeServer.ts"
import * as RequestMetrics from "./Http/Server/RequestMetrics.ts"
import * as Body from "./Kv/Body.ts"
import * as ChangeFeed from "./Kv/ChangeFeed.ts"
import * as Limits from "./Limits.ts"
import { MetricsRoutes } from "./Observability/Endpoints.ts"
import * as Metrics from "./Observability/Metrics.ts"
import * as Tracer from "./Observability/Tracer.ts"
import * as Housekeeping from "./Storage/Housekeeping.ts"

export type { EdgeOptions, Needed, NeededByEdge, Options, Requirements, Services } from "./Causeway/Options.ts"

/** A layer of which only the parts know the type; `Options` says what they come to together. */
type Erased = Layer.Layer<never, unknown, unknown>

type ReflectedApi = HttpApi.HttpApi<string, HttpApiGroup.HttpApiGroup.Any, never, never>

const reflected = (api: HttpApi.HttpApi.Any) => api as ReflectedApi

const none: Erased = Layer.empty

/** The handlers of those of our groups that are in the api. */
const handlersIn = (api: ReflectedApi, parts: ReadonlySet<string>) => {
  const address = pathIn(api, "gateway", "connect")
  const protocol =
    address === undefined ? Effect.fail(new NotFound({ error: "Not found" })) : Endpoints.asyncApi(address)
  return Object.entries({ ...Endpoints.of(api, protocol), gateway }).filter(([name]) => parts.has(name))
}

/** What holds for all parts. */
const common = ({ followLimits, identity, limits, metrics, origins }: Options): Erased =>
  Layer.mergeAll(
    Metrics.layer,
    Tracer.layer,
    identity === undefined ? none : Auth.layerIdentity(identity),
    limits === undefined ? none : Layer.succeed(Limits.Limits, { ...Limits.defaults, ...limits }),
    followLimits === undefined
      ? none
      : Layer.succeed(ChangeFeed.FollowLimits, { ...ChangeFeed.defaults, ...followLimits }),
    origins === undefined ? none : Layer.succeed(FeedOrigins, admits(origins)),
    metrics === undefined
      ? none
      : Layer.succeed(MetricsRoutes, { json: false, prometheus: false, token: Option.none(), ...metrics })
  )

const health = ({ checks = [], upstream }: Options): Erased =>
  upstream === undefined ? Health.layerChecks(checks) : Health.layer(checks)

/** The services behind the parts of an api. The store outlives those who use it. */
const services = (options: Options, parts: ReadonlySet<string>): Erased => {
  const { gateway = none, retention, store = none, upstream = none } = options
  const hasStore = options.store !== undefined
  const age = Option.map(Option.fromNullable(retention), Duration.decode)
  const tasks: Erased = Layer.mergeAll(
    parts.has("kv") ? ChangeFeed.layerMetrics : none,
    hasStore ? Housekeeping.layer(age) : none,
    parts.has("health") ? health(options) : none
  )
  const served: Erased = Layer.merge(parts.has("kv") ? ChangeFeed.layer : none, gateway)
  return tasks.pipe(
    Layer.provideMerge(served),
    Layer.provideMerge(store as Erased),
    Layer.provideMerge(upstream as Erased),
    Layer.provideMerge(common(options))
  )
}

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
    Layer.provide(Body.layer),
    Layer.provideMerge(services(options, parts))
  )
  const router = Layer.merge(PlatformMiddleware.errorLayer(api), HttpRouter.setRouterConfig(routerConfig))
  return Layer.merge(mounted, router) as PlatformLayer<O>
}

/**
 * Serves an application on our own server, the compiled edge, and provides the services behind our groups. The server
 * listens once they are there, and drains before they end; it counts requests by the routes of the api.
 *
 * Groups that are not ours need `handlers`, and middlewares that are not ours `guards`; without them it does not compile.
 */
export const layerEdge = <const O extends EdgeOptions>(options: O & NeededByEdge<O>): EdgeLayer<O> => {
  const api = reflected(options.api)
  const parts = partsOf(api)
  const { guards = Effect.succeed([]), handlers = {}, server }: EdgeOptions = options
  const ours = options.identity === undefined ? Effect.succeed([]) : Auth.guards
  const all = Effect.zipWith(ours, guards, (some, others) => [...some, ...others])
  const listeners = Edge.make(
    api,
    { ...handlers, ...Object.fromEntries(handlersIn(api, parts)) } as never,
    all as never
  )
  const listening = Layer.unwrapEffect(
    Effect.map(RequestMetrics.observer(api), observe => NodeServer.layer({ ...server, observe, isProbe: probeOf(api) }))
  )
  const serving: Erased = NodeServer.serve(listeners)
  return serving.pipe(
    Layer.provideMerge(listening),
    Layer.provide(Body.layer),
    Layer.provideMerge(services(options, parts))
  ) as EdgeLayer<O>
}

/** Tells whether a target is one of the api's probes for orchestrators. */
const probeOf = (api: ReflectedApi): ((target: string) => boolean) => {
  const probes = new Set(["alive", "ready"].map(name => pathIn(api, "health", name)))
  return target => probes.has(pathOf(target))
}
