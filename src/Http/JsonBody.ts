import * as HttpApiMiddleware from "@effect/platform/HttpApiMiddleware"
import * as HttpServerRequest from "@effect/platform/HttpServerRequest"
import { Schema } from "effect"
import { PayloadTooLarge, ServiceUnavailable, UnsupportedMediaType } from "./ApiError.ts"

/**
 * Marks an endpoint with a body, which is read within limits and may keep members as text.
 *
 * Nothing is read before the decoder asks for it, so that strangers are refused first.
 */
export class JsonBody extends HttpApiMiddleware.Tag<JsonBody>()("causeway/JsonBody", {
  provides: HttpServerRequest.HttpServerRequest,
  failure: Schema.Union(PayloadTooLarge.Wire, UnsupportedMediaType.Wire, ServiceUnavailable.Wire)
}) {}
