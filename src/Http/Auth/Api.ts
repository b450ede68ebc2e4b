/** Who may call an endpoint, as the contract declares it. */
import * as HttpApiMiddleware from "@effect/platform/HttpApiMiddleware"
import * as HttpApiSecurity from "@effect/platform/HttpApiSecurity"
import * as OpenApi from "@effect/platform/OpenApi"
import { Schema } from "effect"
import { Forbidden, ServiceUnavailable, Unauthorized } from "../ApiError.ts"
import { Identity } from "../Identity.ts"

const bearer = HttpApiSecurity.bearer.pipe(
  HttpApiSecurity.annotate(
    OpenApi.Description,
    "KV_API_KEY reads and writes; KV_AGENT_API_KEY only reads. For `/metrics` it is METRICS_TOKEN."
  )
)

const failure = Schema.Union(Unauthorized.Wire, Forbidden.Wire, ServiceUnavailable.Wire)

export class ReadAccess extends HttpApiMiddleware.Tag<ReadAccess>()("causeway/ReadAccess", {
  failure,
  provides: Identity,
  security: { bearer }
}) {}

/** The request may read and write. */
export class WriteAccess extends HttpApiMiddleware.Tag<WriteAccess>()("causeway/WriteAccess", {
  failure,
  provides: Identity,
  security: { bearer }
}) {}
