/**
 * The whole service: the only place that chooses backends and puts the layers together.
 */
import * as HttpApiBuilder from "@effect/platform/HttpApiBuilder"
import * as HttpRouter from "@effect/platform/HttpRouter"
import * as HttpServer from "@effect/platform/HttpServer"
import { Console, Effect, Layer, Option, Redacted } from "effect"
import { Api } from "./Api.ts"
import * as Auth from "./Auth/Auth.ts"
import * as AuthHttp from "./Auth/Http.ts"
import { banner, baseUrl } from "./Banner.ts"
import * as ClusterHttp from "./Cluster/Http.ts"
import { type Configuration, developmentKeys } from "./Configuration.ts"
import * as HealthHttp from "./Health/Http.ts"
import * as Body from "./Http/Body.ts"
import * as Draining from "./Http/Draining.ts"
import * as ErrorMiddleware from "./Http/ErrorMiddleware.ts"
import * as NodeServer from "./Http/NodeServer.ts"
import * as FollowLimits from "./Kv/ChangeFeed/FollowLimits.ts"
import * as ChangeFeed from "./Kv/ChangeFeed.ts"
import * as KvHttp from "./Kv/Http.ts"
import * as Limits from "./Kv/Limits.ts"
import { Exposure } from "./Observability/Exposure.ts"
import * as MetricsHttp from "./Observability/Http.ts"
import * as Metrics from "./Observability/Metrics.ts"
import * as RequestMetrics from "./Observability/RequestMetrics.ts"
import * as Tracer from "./Observability/Tracer.ts"
import * as OpenApiHttp from "./OpenApi/Http.ts"
import * as Sqlite from "./Storage/Sqlite.ts"
import { version } from "./Version.ts"

/** Every endpoint, with the middlewares that stand before them. */
const api = HttpApiBuilder.api(Api).pipe(
  Layer.provide([
    KvHttp.layer(Api),
    ClusterHttp.layer(Api),
    HealthHttp.layer(Api),
    MetricsHttp.layer(Api),
    OpenApiHttp.layer(Api)
  ]),
  Layer.provide([AuthHttp.layer, Body.layer])
)

/** Paths are taken as they are: in their case, with their slashes, however long the limits let a name be. */
const routing = HttpRouter.setRouterConfig({
  maxParamLength: 65_536,
  caseSensitive: true,
  ignoreDuplicateSlashes: false,
  ignoreTrailingSlash: false
})

const serve = HttpApiBuilder.serve().pipe(
  Layer.provide(ErrorMiddleware.layer(Api)),
  Layer.provide(api),
  Layer.provide(routing)
)

const services = ({ devMode, followLimits, keys, limits, metrics, store }: Configuration) =>
  ChangeFeed.layer.pipe(
    Layer.provideMerge(Sqlite.layer(store)),
    Layer.provideMerge(
      Layer.mergeAll(
        Draining.layer,
        Auth.layer(keys),
        Metrics.layer,
        Layer.succeed(Exposure, { ...metrics, json: devMode }),
        Layer.succeed(Limits.Limits, limits),
        Layer.succeed(FollowLimits.FollowLimits, followLimits)
      )
    )
  )

const server = ({ address }: Configuration) =>
  Layer.unwrapEffect(Effect.map(RequestMetrics.observer(Api), observe => NodeServer.layer({ ...address, observe })))

/** A key as the banner may show it: one of the user's own is left to the shell. */
const shownKey = ({ keys }: Configuration): string =>
  Option.exists(keys.write, key => Redacted.value(key) === developmentKeys.write)
    ? developmentKeys.write
    : "$KV_API_KEY"

const announce = (configuration: Configuration) =>
  Layer.effectDiscard(
    Effect.gen(function* () {
      const { address } = yield* HttpServer.HttpServer
      yield* Effect.forEach(configuration.warnings, warning => Effect.logWarning(warning), { discard: true })
      if (configuration.devMode) {
        yield* Console.log(banner(baseUrl(address), shownKey(configuration)))
        return
      }
      const where = address._tag === "TcpAddress" ? { host: address.hostname, port: address.port } : address
      yield* Effect.annotateLogs(Effect.logInfo("Listening"), { ...where, version })
    })
  )

/**
 * Serves until its scope closes. Each layer outlives those above it: requests end before the server, and the
 * server before the store.
 */
export const layer = (configuration: Configuration) =>
  announce(configuration).pipe(
    Layer.provide(serve),
    Layer.provide(server(configuration)),
    Layer.provide(services(configuration)),
    Layer.provide(Tracer.layerFor(configuration.collector))
  )
