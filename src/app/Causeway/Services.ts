/** What both servers need of the options: the handlers of the parts of an api, and the services behind them. */
import type * as HttpApi from "@effect/platform/HttpApi"
import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import { Duration, Effect, Layer, Option } from "effect"
import * as Limits from "../../base/Limits.ts"
import * as Metrics from "../../base/Observability/Metrics.ts"
import * as Tracer from "../../base/Observability/Tracer.ts"
import { endpoints as agUi } from "../../Gateway/AgUi/Endpoints.ts"
import { endpoints as chat } from "../../Gateway/AiSdk/Endpoints.ts"
import { endpoints as sessions } from "../../Gateway/HttpSessions/Endpoints.ts"
import { endpoints as gateway } from "../../Gateway/Socket/Endpoints.ts"
import { NotFound } from "../../Http/ApiError.ts"
import * as Auth from "../../Http/Auth/Auth.ts"
import { endpoints as description } from "../../Http/OpenApi/Endpoints.ts"
import { admits, FeedOrigins } from "../../Http/Origin.ts"
import { kindsOf } from "../../Http/Router.ts"
import * as ChangeFeed from "../../Kv/ChangeFeed.ts"
import { endpoints as kv } from "../../Kv/Endpoints.ts"
import { endpoints as activity } from "../../Operations/Activity/Endpoints.ts"
import * as Recorder from "../../Operations/Activity/Recorder.ts"
import * as ActivityReport from "../../Operations/Activity/Report.ts"
import { endpoints as cluster } from "../../Operations/Cluster/Endpoints.ts"
import { endpoints as health } from "../../Operations/Health/Endpoints.ts"
import * as Health from "../../Operations/Health/Report.ts"
import { MetricsRoutes, endpoints as metrics } from "../../Operations/Metrics/Endpoints.ts"
import { Pages, pageEndpoints } from "../../Operations/Pages/Endpoints.ts"
import type { Routes } from "../../Operations/Pages/Paths.ts"
import * as Housekeeping from "../../Storage/Housekeeping.ts"
import type * as AsyncApi from "../AsyncApi.ts"
import type { Options } from "./Options.ts"
import { pathIn } from "./Parts.ts"

/** A layer without its type, which only its parts have; the types of `Options` describe the whole. */
export type Erased = Layer.Layer<never, unknown, unknown>

export type ReflectedApi = HttpApi.HttpApi<string, HttpApiGroup.HttpApiGroup.Any, never, never>

/** An api whose groups are not known by type. */
export const reflected = (api: HttpApi.HttpApi.Any) => api as ReflectedApi

/** The layer of a part that is not served. */
export const none: Erased = Layer.empty

/** The paths of the groups that the pages use. */
const routesOf = (api: ReflectedApi): Routes => ({
  store: pathIn(api, "kv", "list")?.replace(/\/kv\/:namespace$/, ""),
  gateway: pathIn(api, "gateway", "connect"),
  health: pathIn(api, "health", "health"),
  ready: pathIn(api, "health", "ready"),
  activity: pathIn(api, "activity", "activity"),
  metricsJson: pathIn(api, "metrics", "json"),
  chats: pathIn(api, "chat", "send")?.replace(/\/:agentType$/, ""),
  openApi: pathIn(api, "description", "openapi"),
  asyncApi: pathIn(api, "description", "asyncapi"),
  chatPage: pathIn(api, "chatPage", "address"),
  console: pathIn(api, "console", "address"),
  reference: pathIn(api, "reference", "address"),
  root: "/"
})

/** The AsyncAPI document. The first request for it loads the module and makes it. */
export const asyncApi = (addresses?: AsyncApi.Addresses): Effect.Effect<string> =>
  Effect.map(
    Effect.promise(() => import("../AsyncApi.ts")),
    ({ text }) => text(addresses)
  )

/** The handlers of our groups in an api, by the group's name; those of the gateway are in a separate module. */
export const handlersOf = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: HttpApi.HttpApi<Id, Groups, E, R>,
  protocol: Parameters<typeof description>[1]
) => ({ kv, cluster, health, metrics, description: description(api, protocol) })

export const handlersIn = (api: ReflectedApi, parts: ReadonlySet<string>) => {
  const addresses = { gateway: pathIn(api, "gateway", "connect"), changeFeed: pathIn(api, "kv", "changesSocket") }
  const protocol = Object.values(addresses).some(address => address !== undefined)
    ? asyncApi(addresses)
    : Effect.fail(new NotFound({ error: "Not found" }))
  return Object.entries({
    ...handlersOf(api, protocol),
    activity,
    gateway,
    sessions,
    agUi,
    chat,
    ...pageEndpoints(routesOf(api))
  }).filter(([name]) => parts.has(name))
}

/** The services that all parts share. */
const common = ({ followLimits, identity, limits, metrics, origins, pages }: Options): Erased =>
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
      : Layer.succeed(MetricsRoutes, { json: false, prometheus: false, token: Option.none(), ...metrics }),
    pages === undefined ? none : Layer.succeed(Pages, { console: true, reference: true, ...pages })
  )

/** The services behind the parts of an api. The store is released after its users. */
export const services = (options: Options, parts: ReadonlySet<string>): Erased => {
  const { checks = [], gateway = none, retention, store = none, upstream = none } = options
  const hasStore = options.store !== undefined
  const age = Option.map(Option.fromNullable(retention), Duration.decode)
  const tasks: Erased = Layer.mergeAll(
    parts.has("kv") ? ChangeFeed.layerMetrics : none,
    hasStore ? Housekeeping.layer(age) : none,
    parts.has("activity") ? ActivityReport.layer : none,
    parts.has("health") ? (options.upstream === undefined ? Health.layerChecks(checks) : Health.layer(checks)) : none
  )
  const served: Erased = Layer.merge(parts.has("kv") ? ChangeFeed.layer : none, gateway)
  return tasks.pipe(
    Layer.provideMerge(served),
    Layer.provideMerge(upstream as Erased),
    Layer.provideMerge(store as Erased),
    // The gateway, which serves what this node has recorded to others, is built after it.
    Layer.provideMerge(parts.has("activity") ? Recorder.layer(kindsOf(reflected(options.api))) : none),
    Layer.provideMerge(common(options))
  )
}
