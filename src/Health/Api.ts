import * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as OpenApi from "@effect/platform/OpenApi"
import { Schema } from "effect"
import { InternalServerError } from "../Http/ApiError.ts"

const Ok = (description: string) => Schema.Struct({ ok: Schema.Boolean.annotations({ description }) })

/** Liveness and readiness, without credentials. */
export const HealthGroup = HttpApiGroup.make("health")
  .add(
    HttpApiEndpoint.get("alive", "/api/v1/health")
      .addSuccess(Ok("Always true.").annotations({ identifier: "Alive" }))
      .annotate(OpenApi.Summary, "200 while the process runs")
  )
  .add(
    HttpApiEndpoint.get("ready", "/api/v1/ready")
      .addSuccess(Ok("False only while the store is unavailable.").annotations({ identifier: "Ready" }))
      .annotate(OpenApi.Summary, "Whether the store answers")
  )
  .addError(InternalServerError.Wire)
  .annotate(OpenApi.Title, "Health")
