import type * as HttpApi from "@effect/platform/HttpApi"
import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import { Effect } from "effect"
import { Api } from "./Api.ts"
import type * as AsyncApi from "./AsyncApi.ts"
import { endpoints as cluster } from "./Cluster/Endpoints.ts"
import { endpoints as health } from "./Health/Endpoints.ts"
import { endpoints as kv } from "./Kv/Endpoints.ts"
import { endpoints as metrics } from "./Observability/Endpoints.ts"
import { endpoints as description } from "./OpenApi/Endpoints.ts"

/** The AsyncAPI document. The first request for it loads the module and makes it. */
export const asyncApi = (addresses?: AsyncApi.Addresses): Effect.Effect<string> =>
  Effect.map(
    Effect.promise(() => import("./AsyncApi.ts")),
    ({ text }) => text(addresses)
  )

/** The handlers of our groups in an api, by the group's name; those of the gateway are in a separate module. */
export const of = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: HttpApi.HttpApi<Id, Groups, E, R>,
  protocol: Parameters<typeof description>[1]
) => ({ kv, cluster, health, metrics, description: description(api, protocol) })

/** The handlers of every group of the service's Api. */
export const endpoints = of(Api, asyncApi())
