/** A host with its own routes and ours on `HttpLayerRouter`, over the platform's own server. */
import { createServer } from "node:http"
import * as HttpApi from "@effect/platform/HttpApi"
import * as HttpLayerRouter from "@effect/platform/HttpLayerRouter"
import * as HttpServer from "@effect/platform/HttpServer"
import * as HttpServerResponse from "@effect/platform/HttpServerResponse"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { expect } from "@effect/vitest"
import { Context, Effect, Exit, Layer, Logger, Scope } from "effect"
import { WebSocket } from "ws"
import {
  Auth,
  Body,
  ChangeFeed,
  DrainingSignal,
  GroupLayer,
  KvGroup,
  kvEndpoints,
  PlatformMiddleware,
  routerConfig,
  StockServer
} from "../../../src/exports/index.ts"
import { memory } from "../../../src/exports/store.ts"
import { auth, keys, portOf } from "../../Harness.ts"
import { test } from "../../Tests.ts"

const Data = HttpApi.make("data").add(KvGroup).prefix("/data")

const services = Layer.merge(ChangeFeed.layer, Body.layer).pipe(
  Layer.provideMerge(Layer.merge(memory, Layer.provideMerge(Auth.middlewares, auth)))
)

const application = HttpLayerRouter.serve(
  Layer.mergeAll(
    Layer.provide(HttpLayerRouter.addHttpApi(Data), GroupLayer.layer(Data, KvGroup, kvEndpoints)),
    HttpLayerRouter.add("GET", "/hello", HttpServerResponse.text("hello")),
    PlatformMiddleware.errorLayerRouter(Data)
  ),
  { routerConfig, disableLogger: true, disableListenLog: true }
).pipe(
  Layer.provideMerge(StockServer.layer(Data)),
  Layer.provideMerge(NodeHttpServer.layer(createServer, { host: "127.0.0.1", port: 0 })),
  Layer.provide(services),
  Layer.provide(DrainingSignal.layer),
  Layer.provide(Logger.remove(Logger.defaultLogger))
)

test.scopedLive(
  "a follower on a router of routes is notified that the service ends, and the host's routes also have ids",
  function* () {
    const scope = yield* Scope.make()
    const port = portOf(Context.get(yield* Layer.buildWithScope(application, scope), HttpServer.HttpServer))
    const hello = yield* Effect.promise(() =>
      fetch(`http://127.0.0.1:${port}/hello`, { headers: { "x-request-id": "mine" } })
    )
    expect([yield* Effect.promise(() => hello.text()), hello.headers.get("x-request-id")]).toEqual(["hello", "mine"])
    const headers = { authorization: `Bearer ${keys.read}` }
    const socket = new WebSocket(`ws://127.0.0.1:${port}/data/api/v1/changes/ws`, { headers })
    yield* Effect.async<void>(resume => void socket.on("open", () => resume(Effect.void)))
    const closed = new Promise(resolve => socket.on("close", resolve))
    yield* Scope.close(scope, Exit.void)
    expect(yield* Effect.promise(() => closed)).toBe(1001)
  }
)
