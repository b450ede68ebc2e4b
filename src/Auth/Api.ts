import * as HttpApiMiddleware from "@effect/platform/HttpApiMiddleware"
import * as HttpApiSecurity from "@effect/platform/HttpApiSecurity"
import * as OpenApi from "@effect/platform/OpenApi"
import { Schema } from "effect"
import { Forbidden, Unauthorized } from "../Http/ApiError.ts"

const bearer = HttpApiSecurity.bearer.pipe(
  HttpApiSecurity.annotate(OpenApi.Description, "KV_API_KEY reads and writes; KV_AGENT_API_KEY only reads.")
)

/** The request has a credential that reads. */
export class ReadAccess extends HttpApiMiddleware.Tag<ReadAccess>()("causeway/ReadAccess", {
  failure: Unauthorized.Wire,
  security: { bearer }
}) {}

/** The request has the credential that writes. It may run before {@link ReadAccess}, so it answers 401 too. */
export class WriteAccess extends HttpApiMiddleware.Tag<WriteAccess>()("causeway/WriteAccess", {
  failure: Schema.Union(Unauthorized.Wire, Forbidden.Wire)
}) {}
