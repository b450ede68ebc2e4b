/** The contract of the `gateway` group: the handshake of a client's WebSocket. */
import * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as HttpApiSchema from "@effect/platform/HttpApiSchema"
import * as OpenApi from "@effect/platform/OpenApi"
import { Schema } from "effect"
import { Part } from "../Http/Contract.ts"

const text = Schema.optional(Schema.String)

/** The headers of a handshake that identify the client, and those that propagate traces. */
const HandshakeHeaders = Schema.Struct({
  authorization: text,
  host: text,
  origin: text,
  "sec-websocket-protocol": text,
  traceparent: text,
  b3: text,
  "x-b3-traceid": text,
  "x-b3-spanid": text,
  "x-b3-sampled": text
})
export type HandshakeHeaders = typeof HandshakeHeaders.Type

/** The WebSocket of the gateway's clients. Its messages are described by AsyncAPI. */
export const GatewayGroup = HttpApiGroup.make("gateway")
  .add(HttpApiEndpoint.get("connect", "/ws").setHeaders(HandshakeHeaders).addSuccess(HttpApiSchema.Empty(101)))
  .annotate(OpenApi.Exclude, true)
  .annotate(Part, "gateway")
