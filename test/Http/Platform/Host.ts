/** An application of a host over a store in memory, on each server that a host may have. */
import { createServer, type Server } from "node:http"
import * as HttpApiBuilder from "@effect/platform/HttpApiBuilder"
import * as HttpRouter from "@effect/platform/HttpRouter"
import * as HttpServer from "@effect/platform/HttpServer"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Context, Effect, Layer, Option, Redacted } from "effect"
import {
  StoreApi as Api,
  Auth,
  Body,
  ChangeFeed,
  ClusterGroup,
  clusterEndpoints,
  DescriptionGroup,
  DrainingSignal,
  descriptionEndpoints,
  Edge,
  GroupLayer,
  Health,
  HealthGroup,
  healthEndpoints,
  KvGroup,
  kvEndpoints,
  Metrics,
  MetricsGroup,
  MetricsRoutes,
  metricsEndpoints,
  NodeServer,
  PlatformMiddleware,
  PlatformServer,
  RequestMetrics,
  routerConfig,
  StockServer
} from "../../../src/exports/index.ts"
import { memory } from "../../../src/exports/store.ts"

/** The one key of the host. */
export const key = "key-of-the-host"

const endpoints = {
  kv: kvEndpoints,
  cluster: clusterEndpoints,
  health: healthEndpoints,
  metrics: metricsEndpoints,
  description: descriptionEndpoints(Api, Effect.succeed("{}"))
}

const services = Layer.mergeAll(Auth.middlewares, Body.layer, Health.layerAlone, ChangeFeed.layerMetrics).pipe(
  Layer.provideMerge(Layer.merge(ChangeFeed.layer, Metrics.layer)),
  Layer.provideMerge(
    Layer.mergeAll(
      Auth.layer({ write: Option.some(Redacted.make(key)), read: Option.none() }),
      Layer.succeed(MetricsRoutes, { json: true, prometheus: true, token: Option.none() }),
      memory
    )
  )
)

const application = HttpApiBuilder.serve().pipe(
  Layer.provide(PlatformMiddleware.errorLayer(Api)),
  Layer.provide(HttpApiBuilder.api(Api)),
  Layer.provide([
    GroupLayer.layer(Api, KvGroup, endpoints.kv),
    GroupLayer.layer(Api, ClusterGroup, endpoints.cluster),
    GroupLayer.layer(Api, HealthGroup, endpoints.health),
    GroupLayer.layer(Api, MetricsGroup, endpoints.metrics),
    GroupLayer.layer(Api, DescriptionGroup, endpoints.description)
  ]),
  Layer.provide(HttpRouter.setRouterConfig(routerConfig)),
  Layer.provide(services)
)

const address = { host: "127.0.0.1", port: 0 }

const servers = {
  /** The platform's own server. */
  stock: application.pipe(
    Layer.provideMerge(StockServer.layer(Api)),
    Layer.provideMerge(NodeHttpServer.layer(createServer, address))
  ),
  /** Our server, with the platform's application. */
  platform: application.pipe(
    Layer.provideMerge(StockServer.layer(Api)),
    Layer.provideMerge(PlatformServer.layer(address))
  ),
  /** Our server and our edge. */
  edge: NodeServer.serve(Edge.make(Api, endpoints, Auth.guards)).pipe(
    Layer.provideMerge(
      Layer.unwrapEffect(Effect.map(RequestMetrics.observer(Api), observe => NodeServer.layer({ ...address, observe })))
    ),
    Layer.provide(services)
  )
}

/** The same application with the platform's own server provided last: it listens first, and waits. */
export const listeningFirst = (server: Server, isReady: Effect.Effect<void>) =>
  application.pipe(
    Layer.provide(Layer.effectDiscard(isReady)),
    Layer.provide(StockServer.layer(Api)),
    Layer.provide(NodeHttpServer.layer(() => server, address)),
    Layer.provide(DrainingSignal.layer)
  )

export type Kind = keyof typeof servers

/** Serves until the scope closes, and returns the port. */
export const serve = (kind: Kind) =>
  Effect.map(
    Layer.build(
      Layer.fresh(
        Layer.provide(
          servers[kind] as Layer.Layer<
            HttpServer.HttpServer | NodeServer.NodeServer,
            unknown,
            DrainingSignal.DrainingSignal
          >,
          DrainingSignal.layer
        )
      )
    ),
    context => {
      const server = Option.orElse(Context.getOption(context, HttpServer.HttpServer), () =>
        Context.getOption(context, NodeServer.NodeServer)
      )
      const at = Option.getOrUndefined(server)?.address
      return at?._tag === "TcpAddress" ? at.port : 0
    }
  )
