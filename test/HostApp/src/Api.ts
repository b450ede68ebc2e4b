/** The contract of the shop: its own groups, and those of Causeway under the shop's prefixes. */
import * as HttpApi from "@effect/platform/HttpApi"
import * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import { GatewayGroup, HealthRoutes, KvRoutes, MetricsGroup } from "causewayd/contract"
import { Schema } from "effect"

export const OrdersGroup = HttpApiGroup.make("orders").add(
  HttpApiEndpoint.get("stock", "/orders/stock").addSuccess(Schema.Struct({ apples: Schema.NullOr(Schema.Int) }))
)

export const Shop = HttpApi.make("shop")
  .add(OrdersGroup)
  .add(KvRoutes.prefix("/data"))
  .add(GatewayGroup.prefix("/agents"))
  .add(HealthRoutes.prefix("/probes"))
  .add(MetricsGroup.prefix("/internal"))
