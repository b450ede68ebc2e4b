/** The service as composed for production, in this process, with its upstreams and collector given. */
import * as FetchHttpClient from "@effect/platform/FetchHttpClient"
import * as NodeFileSystem from "@effect/platform-node/NodeFileSystem"
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import { ConfigProvider, Context, Effect, Layer, Logger, Option } from "effect"
import { StoreApi as Api } from "../../../src/app/Api.ts"
import { asyncApi, handlersOf } from "../../../src/app/Causeway/Services.ts"
import * as Metrics from "../../../src/base/Observability/Metrics.ts"
import * as MetricTags from "../../../src/base/Observability/MetricTags.ts"
import * as Tracer from "../../../src/base/Observability/Tracer.ts"
import { GatewayGroup } from "../../../src/Gateway/Api.ts"
import * as Authentication from "../../../src/Gateway/Authentication.ts"
import * as Gateway from "../../../src/Gateway/Gateway.ts"
import * as GatewayEndpoints from "../../../src/Gateway/Socket/Endpoints.ts"
import * as Auth from "../../../src/Http/Auth/Auth.ts"
import * as DrainingSignal from "../../../src/Http/DrainingSignal.ts"
import * as Edge from "../../../src/Http/Edge/Edge.ts"
import * as NodeServer from "../../../src/Http/Server/NodeServer.ts"
import * as RequestMetrics from "../../../src/Http/Server/RequestMetrics.ts"
import * as Body from "../../../src/Kv/Body.ts"
import * as ChangeFeed from "../../../src/Kv/ChangeFeed.ts"
import * as Health from "../../../src/Operations/Health/Report.ts"
import { MetricsRoutes } from "../../../src/Operations/Metrics/Endpoints.ts"
import * as Housekeeping from "../../../src/Storage/Housekeeping.ts"
import * as SessionEvents from "../../../src/Storage/Sqlite/SessionEvents.ts"
import * as Sqlite from "../../../src/Storage/Sqlite.ts"
import { defaultUrl } from "../../../src/Upstream/Inference.ts"
import * as UpstreamClients from "../../../src/Upstream/UpstreamClients.ts"
import { auth, portOf } from "../../Harness.ts"
import { temporaryDirectory } from "../../TemporaryDirectory.ts"

/** Clients of an agent platform at an address. */
export const upstreams = (platform: Option.Option<string>) =>
  Layer.provide(
    UpstreamClients.layer({
      agentPlatform: { url: platform, apiKey: Option.none() },
      inference: { url: defaultUrl, apiKey: Option.none() }
    }),
    NodeHttpClient.layerUndici
  )

/** Discards the log of a service under test. */
export const quiet = Logger.remove(Logger.defaultLogger)

/** Serves until the scope closes, and returns the base address. */
export const serve = (options: {
  readonly platform?: string
  readonly tracing?: Layer.Layer<Tracer.Tracer>
  readonly tags?: Readonly<Record<string, string>>
}) =>
  Effect.gen(function* () {
    const directory = yield* temporaryDirectory
    const gateway = yield* Effect.withConfigProvider(Gateway.config, ConfigProvider.fromMap(new Map()))
    const services = Layer.mergeAll(Body.layer, ChangeFeed.layerMetrics, Health.layer()).pipe(
      Layer.provideMerge(
        Layer.merge(ChangeFeed.layer, Gateway.layerWith(Authentication.layerDev(gateway.authentication), gateway))
      ),
      Layer.provideMerge(Housekeeping.layer(Option.none())),
      Layer.provideMerge(SessionEvents.layer({ directory, retention: gateway.history })),
      Layer.provideMerge(Sqlite.layer({ directory })),
      Layer.provideMerge(
        Layer.mergeAll(
          auth,
          DrainingSignal.layer,
          FetchHttpClient.layer,
          Metrics.layer,
          NodeFileSystem.layer,
          upstreams(Option.fromNullable(options.platform)),
          Layer.succeed(MetricsRoutes, { json: true, prometheus: true, token: Option.none() })
        )
      )
    )
    const listening = Layer.unwrapEffect(
      Effect.map(RequestMetrics.observer(Api), observe => NodeServer.layer({ host: "127.0.0.1", port: 0, observe }))
    )
    const context = yield* Layer.build(
      NodeServer.serve(
        Edge.make(
          Api.add(GatewayGroup),
          { ...handlersOf(Api, asyncApi()), gateway: GatewayEndpoints.endpoints },
          Auth.guards
        )
      ).pipe(
        Layer.provideMerge(listening),
        Layer.provide(services),
        Layer.provide(options.tracing ?? Tracer.layerFor(Option.none())),
        Layer.provide(quiet),
        MetricTags.tagged(options.tags ?? {})
      )
    )
    const server = Context.get(context, NodeServer.NodeServer)
    return `http://127.0.0.1:${portOf(server)}`
  })
