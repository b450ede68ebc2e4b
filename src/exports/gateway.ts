/** The gateway between clients and an agent platform: its layer, its ports and its contract. */
export * as AsyncApi from "../app/AsyncApi.ts"
export { GatewayGroup } from "../Gateway/Api.ts"
export * as Authentication from "../Gateway/Authentication.ts"
export * as Gateway from "../Gateway/Gateway.ts"
export * as Protocol from "../Gateway/Protocol.ts"
export * as SessionEvents from "../Gateway/SessionEvents.ts"
export * as Sessions from "../Gateway/Sessions.ts"
export { endpoints as gatewayEndpoints, Socket } from "../Gateway/Socket/Endpoints.ts"
