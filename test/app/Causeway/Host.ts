/** An application of a host: its api, its users, its store, and its two servers. */
import { createServer } from "node:http"
import * as HttpApi from "@effect/platform/HttpApi"
import * as HttpApiBuilder from "@effect/platform/HttpApiBuilder"
import * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as HttpServer from "@effect/platform/HttpServer"
import * as NodeHttpClient from "@effect/platform-node/NodeHttpClient"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Context, Effect, Layer, Logger, Option, Schema } from "effect"
import { WebSocket } from "ws"
import {
  ActivityRoutes,
  AgUiRoutes,
  ApiError,
  Causeway,
  ChangeFeed,
  ChangeLog,
  ChatRoutes,
  ClusterRoutes,
  DescriptionRoutes,
  Direct,
  DrainingSignal,
  Endpoints,
  GatewayGroup,
  HealthRoutes,
  type Identity,
  KvRoutes,
  MetricsGroup,
  NodeServer,
  Reply,
  SessionRoutes,
  StockServer,
  Store
} from "../../../src/exports/index.ts"
import { memory } from "../../../src/exports/store.ts"
import { UpstreamClients } from "../../../src/exports/upstream.ts"
import * as Gateway from "../../../src/Gateway/Gateway.ts"
import * as Simulator from "../../../src/Simulator/Simulator.ts"
import { portOf } from "../../Harness.ts"

const OrdersGroup = HttpApiGroup.make("orders").add(
  HttpApiEndpoint.get("count", "/orders/count").addSuccess(Schema.Struct({ count: Schema.Int }))
)

/** The host's api: our groups under prefixes of its own, and a group of its own. */
const Shop = HttpApi.make("shop")
  .add(OrdersGroup)
  .add(KvRoutes.prefix("/store"))
  .add(ClusterRoutes.prefix("/store"))
  .add(ActivityRoutes.prefix("/store"))
  .add(HealthRoutes.prefix("/probes"))
  .add(MetricsGroup.prefix("/internal"))
  .add(DescriptionRoutes.prefix("/docs"))
  .add(GatewayGroup.prefix("/agents"))
  .add(ChatRoutes.prefix("/agents"))
  .add(AgUiRoutes.prefix("/agents"))
  .add(SessionRoutes.prefix("/agents"))

/** The users of the host, who sign in by a cookie or a token. */
class Users extends Context.Tag("shop/Users")<Users, ReadonlyMap<string, Identity.IdentityShape>>() {}

const users = Layer.succeed(
  Users,
  new Map<string, Identity.IdentityShape>([
    ["anna", { access: "write", actor: "anna", tenant: "acme" }],
    ["reader", { access: "read", actor: "reader", tenant: "acme" }],
    ["other", { access: "write", actor: "other", tenant: "evil" }],
    ["root", { access: "write" }],
    ["nobody", { access: "write", tenant: "" }]
  ])
)

/** Asks a service of the host, and takes a turn of the event loop for it. */
export const identity = ({ credential, headers }: Identity.Credentials) =>
  Effect.gen(function* () {
    const known = yield* Users
    yield* Effect.yieldNow()
    const name = /^Bearer (.*)$/.exec(credential ?? "")?.[1] ?? /user=(\w+)/.exec(String(headers.cookie))?.[1]
    if (name === "late") return yield* new ApiError.ServiceUnavailable({ error: "The users are unreachable" })
    return known.get(name ?? "") ?? (yield* new ApiError.Unauthorized({ error: "Sign in" }))
  })

/** The same at once, as an effect that needs no fiber. */
export const directIdentity = (request: Identity.Credentials) =>
  Direct.flatMap(
    Direct.suspend(() => Users),
    known => {
      const found = known.get(/^Bearer (.*)$/.exec(request.credential ?? "")?.[1] ?? "")
      return found === undefined ? Effect.fail(new ApiError.Unauthorized({ error: "Sign in" })) : Effect.succeed(found)
    }
  )

/** A wrapper of the host, by which all reads go. */
const wrapped = Layer.effect(
  Store.Store,
  Effect.map(Store.Store, store => ({
    ...store,
    get: (namespace: string, key: string) =>
      Effect.map(
        store.get(namespace, key),
        Option.map(entry => ({ ...entry, updatedBy: `${entry.updatedBy} (wrapped)` }))
      )
  }))
).pipe(Layer.provideMerge(memory))

const upstream = Layer.unwrapScoped(
  Effect.map(Simulator.make({ seed: 1 }), simulator =>
    UpstreamClients.layer({
      agentPlatform: { url: Option.some(simulator.platformUrl), apiKey: Option.none() },
      inference: { url: simulator.inferenceUrl, apiKey: Option.none() }
    })
  )
)

const options = {
  api: Shop,
  store: wrapped,
  gateway: Gateway.layer(),
  upstream,
  metrics: { json: true }
}

const count = Effect.map(Effect.all([ChangeLog.ChangeLog, ChangeFeed.ChangeFeed]), ([log]) => Effect.orDie(log.lastSeq))

/** Where the application listens. */
export class Port extends Context.Tag("test/Port")<Port, number>() {}

const portFrom = <R>(server: Effect.Effect<{ readonly address: HttpServer.Address }, never, R>) =>
  Layer.effect(Port, Effect.map(server, portOf))

const address = { host: "127.0.0.1", port: 0 }

const ordersOnPlatform = HttpApiBuilder.group(Shop, "orders", handlers =>
  Effect.map(count, read => handlers.handle("count", () => Effect.map(read, count => ({ count }))))
)

const orders = Endpoints.of(
  OrdersGroup,
  Effect.map(count, read => ({ count: () => Effect.map(read, count => Reply.json(JSON.stringify({ count }))) }))
)

type Identify = typeof identity | typeof directIdentity

const servers = {
  stock: (identify: Identify) =>
    Layer.merge(
      portFrom(HttpServer.HttpServer),
      HttpApiBuilder.serve().pipe(
        Layer.provide(HttpApiBuilder.api(Shop)),
        Layer.provide(ordersOnPlatform),
        Layer.provide(Causeway.layer({ ...options, identity: identify }))
      )
    ).pipe(
      Layer.provide(StockServer.layer(Shop, { gracePeriod: 100 })),
      Layer.provide(NodeHttpServer.layer(createServer, address))
    ),
  edge: (identify: Identify) =>
    portFrom(NodeServer.NodeServer).pipe(
      Layer.provide(
        Causeway.layerEdge({
          ...options,
          identity: identify,
          handlers: { orders },
          server: { ...address, gracePeriod: 100 }
        })
      )
    )
}

export const serve = (kind: keyof typeof servers, identify: Identify = identity) =>
  servers[kind](identify).pipe(
    Layer.provide([users, DrainingSignal.layer, NodeHttpClient.layerUndici, Logger.remove(Logger.defaultLogger)])
  )

/** One request by a user. */
export const ask = (user: string, method: string, path: string, body?: unknown, more: Record<string, string> = {}) =>
  Effect.flatMap(Port, port =>
    Effect.promise(async () => {
      const answer = await fetch(`http://127.0.0.1:${port}${path}`, {
        method,
        headers: { authorization: `Bearer ${user}`, "content-type": "application/json", ...more },
        ...(body === undefined ? {} : { body: JSON.stringify(body) })
      })
      const text = await answer.text()
      return { status: answer.status, body: text.startsWith("{") ? JSON.parse(text) : text }
    })
  )

export const own = "/store/kv/tenant%3Aacme%2Fx"

export const foreign = "/store/kv/tenant%3Aevil"

/** The first frame of a WebSocket, or the status of its refusal. */
export const firstFrame = (path: string, headers: Readonly<Record<string, string>>, send?: unknown) =>
  Effect.flatMap(Port, port =>
    Effect.acquireUseRelease(
      Effect.sync(() => new WebSocket(`ws://127.0.0.1:${port}${path}`, { headers })),
      socket =>
        Effect.async<unknown>(resume => {
          socket.on("open", () => send === undefined || socket.send(JSON.stringify(send)))
          socket.on("message", data => resume(Effect.succeed(JSON.parse(String(data)))))
          socket.on("unexpected-response", (_request, { statusCode }) => resume(Effect.succeed(statusCode)))
          socket.on("error", () => {})
        }),
      socket => Effect.sync(() => socket.terminate())
    )
  )
