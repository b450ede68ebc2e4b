/**
 * The contract alone: the api and its groups, and the protocol of the gateway's clients. It needs `effect` and
 * `@effect/platform`, and nothing of Node, so that clients and browsers can import it.
 */
export { Api, StoreApi } from "../app/Api.ts"
export { AgUiGroup, AgUiRoutes } from "../Gateway/AgUi/Api.ts"
export { ChatGroup, ChatRoutes } from "../Gateway/AiSdk/Api.ts"
export { GatewayAccess, GatewayGroup } from "../Gateway/Api.ts"
export { SessionRoutes, SessionsGroup } from "../Gateway/HttpSessions/Api.ts"
export * as Protocol from "../Gateway/Protocol.ts"
export * as ApiError from "../Http/ApiError.ts"
export { ReadAccess, WriteAccess } from "../Http/Auth/Api.ts"
export { HistoryBody, JsonBody, ObjectBody } from "../Http/Contract.ts"
export { DescriptionGroup, DescriptionRoutes } from "../Http/OpenApi/Api.ts"
export { Change, Entry, KvGroup, KvRoutes } from "../Kv/Api.ts"
export { ActivityGroup, ActivityRoutes } from "../Operations/Activity/Api.ts"
export { ClusterGroup, ClusterRoutes } from "../Operations/Cluster/Api.ts"
export { HealthGroup, HealthRoutes } from "../Operations/Health/Api.ts"
export { MetricsGroup } from "../Operations/Metrics/Api.ts"
export { ConsoleGroup, ReferenceGroup } from "../Operations/Pages/Api.ts"
