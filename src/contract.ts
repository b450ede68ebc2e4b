/**
 * The contract alone: the api and its groups, and the protocol of the gateway's clients. It needs `effect` and
 * `@effect/platform`, and nothing of Node, so that clients and browsers can import it.
 */
export { Api } from "./Api.ts"
export { ReadAccess, WriteAccess } from "./Auth/Api.ts"
export { ClusterGroup, ClusterRoutes } from "./Cluster/Api.ts"
export { GatewayGroup } from "./Gateway/Api.ts"
export * as Protocol from "./Gateway/Protocol.ts"
export { HealthGroup, HealthRoutes } from "./Health/Api.ts"
export * as ApiError from "./Http/ApiError.ts"
export { JsonBody } from "./Http/Contract.ts"
export { Change, Entry, KvGroup, KvRoutes } from "./Kv/Api.ts"
export { MetricsGroup } from "./Observability/Api.ts"
export { DescriptionGroup, DescriptionRoutes } from "./OpenApi/Api.ts"
export { ConsoleGroup, ReferenceGroup } from "./Pages/Api.ts"
