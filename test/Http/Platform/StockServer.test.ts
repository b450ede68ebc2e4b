/** What a host has on a platform server of its own, and on ours: an end, request ids, figures. All over real sockets. */
import { spawn } from "node:child_process"
import { createServer, get, type IncomingMessage } from "node:http"
import { createInterface } from "node:readline"
import * as HttpApiBuilder from "@effect/platform/HttpApiBuilder"
import * as HttpRouter from "@effect/platform/HttpRouter"
import * as HttpServer from "@effect/platform/HttpServer"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { describe, expect, it } from "@effect/vitest"
import { Context, Effect, Exit, HashMap, Layer, Logger, Option, Redacted, Scope, Tracer } from "effect"
import { WebSocket } from "ws"
import {
  Api,
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
  Memory,
  Metrics,
  MetricsGroup,
  MetricsRoutes,
  metricsEndpoints,
  MetricTags,
  NodeServer,
  PlatformMiddleware,
  PlatformServer,
  routerConfig,
  StockServer
} from "../../../src/index.ts"
import { portOf } from "../../Harness.ts"

const headers = { authorization: "Bearer key" }

const description = descriptionEndpoints(Api, Effect.succeed("{}"))

const services = Layer.mergeAll(Auth.middlewares, Body.layer, Health.layerAlone, ChangeFeed.layerMetrics).pipe(
  Layer.provideMerge(Layer.merge(ChangeFeed.layer, Metrics.layer)),
  Layer.provideMerge(
    Layer.mergeAll(
      Auth.layer({ write: Option.some(Redacted.make("key")), read: Option.none() }),
      Layer.succeed(MetricsRoutes, { json: true, prometheus: true, token: Option.none() }),
      Memory.layer
    )
  )
)

const application = HttpApiBuilder.serve().pipe(
  Layer.provide(PlatformMiddleware.errorLayer(Api)),
  Layer.provide(HttpApiBuilder.api(Api)),
  Layer.provide([
    GroupLayer.layer(Api, KvGroup, kvEndpoints),
    GroupLayer.layer(Api, ClusterGroup, clusterEndpoints),
    GroupLayer.layer(Api, HealthGroup, healthEndpoints),
    GroupLayer.layer(Api, MetricsGroup, metricsEndpoints),
    GroupLayer.layer(Api, DescriptionGroup, description)
  ]),
  Layer.provide(HttpRouter.setRouterConfig(routerConfig))
)

const address = { host: "127.0.0.1", port: 0 }
const stock = StockServer.layer(Api).pipe(Layer.provideMerge(NodeHttpServer.layer(createServer, address)))
const ours = StockServer.layer(Api).pipe(Layer.provideMerge(PlatformServer.layer(address)))

const onPlatform = (server: typeof stock | typeof ours) =>
  application.pipe(
    Layer.provideMerge(server),
    Layer.provide(services),
    Layer.provide(DrainingSignal.layer),
    Layer.map(context => portOf(Context.get(context as Context.Context<HttpServer.HttpServer>, HttpServer.HttpServer))),
    Layer.orDie
  )
