/** The contract of the `gateway` group, the handshake of a client's WebSocket, and of access to the gateway over HTTP. */
import * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as HttpApiMiddleware from "@effect/platform/HttpApiMiddleware"
import * as HttpApiSchema from "@effect/platform/HttpApiSchema"
import * as HttpApiSecurity from "@effect/platform/HttpApiSecurity"
import * as OpenApi from "@effect/platform/OpenApi"
import { Schema } from "effect"
import {
  BadGateway,
  BadRequest,
  Conflict,
  Forbidden,
  GatewayTimeout,
  InternalServerError,
  NotFound,
  ServiceUnavailable,
  Unauthorized
} from "../Http/ApiError.ts"
import { Part, RouteKind } from "../Http/Contract.ts"
import { Identity } from "../Http/Identity.ts"

const text = Schema.optional(Schema.String)

/** The headers of a handshake that identify the client, and those that propagate traces. */
export const HandshakeHeaders = Schema.Struct({
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
  .annotate(RouteKind, "stream")

/** The errors of requests that the agent takes part in. */
export const CallErrors = Schema.Union(NotFound.Wire, Conflict.Wire, BadGateway.Wire, GatewayTimeout.Wire)

/** The errors that any request may have. */
export const ServerErrors = Schema.Union(BadRequest.Wire, InternalServerError.Wire, ServiceUnavailable.Wire)

/** An answer that is an event stream. */
export const EventStreamText = Schema.String.pipe(
  HttpApiSchema.withEncoding({ kind: "Text", contentType: "text/event-stream" })
)

/** The request is that of a client of the gateway. */
export class GatewayAccess extends HttpApiMiddleware.Tag<GatewayAccess>()("causeway/GatewayAccess", {
  failure: Schema.Union(Unauthorized.Wire, Forbidden.Wire, ServiceUnavailable.Wire),
  provides: Identity,
  security: {
    jwt: HttpApiSecurity.bearer.pipe(
      HttpApiSecurity.annotate(
        OpenApi.Description,
        "A JSON Web Token with the claims `tenant`, `sub` and `exp`, as for the WebSocket of the gateway. In dev mode none is needed."
      )
    )
  }
}) {}
