/** The shop on either server. */
import { createServer } from "node:http"
import * as HttpApiBuilder from "@effect/platform/HttpApiBuilder"
import * as HttpServer from "@effect/platform/HttpServer"
import * as NodeHttpServer from "@effect/platform-node/NodeHttpServer"
import { Causeway, DrainingSignal, Endpoints, MetricTags, NodeServer, Reply, StockServer } from "causewayd"
import { Gateway } from "causewayd/gateway"
import { AgentPlatformInMemory, InferenceInMemory } from "causewayd/testing"
import { Context, Effect, Layer, Logger } from "effect"
import { OrdersGroup, Shop } from "./Api.ts"
import * as Spans from "./Spans.ts"
import * as Stock from "./Stock.ts"
import * as Users from "./Users.ts"

/** Where the shop listens. */
export class Port extends Context.Tag("shop/Port")<Port, number>() {}

const portOf = <R>(server: Effect.Effect<{ readonly address: HttpServer.Address }, never, R>) =>
  Layer.effect(
    Port,
    Effect.map(server, ({ address }) => (address._tag === "TcpAddress" ? address.port : 0))
  )

const address = { host: "127.0.0.1", port: 0 }

const parts = {
  api: Shop,
  store: Stock.layer,
  identity: Users.identity,
  gateway: Gateway.layer(),
  upstream: Layer.merge(AgentPlatformInMemory.layer(), InferenceInMemory.layer()),
  metrics: { prometheus: true }
}

const ordersOnPlatform = HttpApiBuilder.group(Shop, "orders", handlers =>
  Effect.map(Stock.apples, apples => handlers.handle("stock", () => Effect.map(apples, apples => ({ apples }))))
)

const stock = Layer.merge(
  portOf(HttpServer.HttpServer),
  HttpApiBuilder.serve().pipe(Layer.provide(HttpApiBuilder.api(Shop)))
).pipe(
  Layer.provide(StockServer.layer(Shop, { gracePeriod: "1 second" })),
  Layer.provide(NodeHttpServer.layer(createServer, address)),
  Layer.provide(ordersOnPlatform),
  Layer.provide(Causeway.layer(parts))
)

const orders = Endpoints.of(
  OrdersGroup,
  Effect.map(Stock.apples, apples => ({
    stock: () => Effect.map(apples, apples => Reply.json(JSON.stringify({ apples })))
  }))
)

const edge = portOf(NodeServer.NodeServer).pipe(
  Layer.provide(Causeway.layerEdge({ ...parts, handlers: { orders }, server: { ...address, gracePeriod: "1 second" } }))
)

/** The name of a server. */
export type Kind = "stock" | "edge"

/** The shop, whose metrics carry the name of its server. */
export const application = (kind: Kind) => {
  const services = [DrainingSignal.layer, Users.layer, Spans.layer, Logger.remove(Logger.defaultLogger)] as const
  const instance = MetricTags.tagged({ shop: kind })
  return kind === "stock" ? Layer.provide(instance(stock), services) : Layer.provide(instance(edge), services)
}
