import { Effect } from "effect"
import { Api } from "./Api.ts"
import { endpoints as cluster } from "./Cluster/Endpoints.ts"
import { endpoints as health } from "./Health/Endpoints.ts"
import { endpoints as kv } from "./Kv/Endpoints.ts"
import { endpoints as metrics } from "./Observability/Endpoints.ts"
import { endpoints as description } from "./OpenApi/Endpoints.ts"

/** The document is made by the first request for it, which also loads the module. */
const asyncApi = Effect.map(
  Effect.promise(() => import("./Gateway/AsyncApi.ts")),
  ({ text }) => text()
)

/** The handlers of every group of the service's Api, by the group's name. */
export const endpoints = { kv, cluster, health, metrics, description: description(Api, asyncApi) }
