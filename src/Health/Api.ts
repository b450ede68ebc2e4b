import * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as OpenApi from "@effect/platform/OpenApi"
import { Schema } from "effect"
import { InternalServerError } from "../Http/ApiError.ts"
import { operation } from "../OpenApi/Describe.ts"

const Ok = (description: string) => Schema.Struct({ ok: Schema.Boolean.annotations({ description }) })

const probe = (operationId: string, description: string) =>
  operation({ operationId, answers: { 200: { description, example: { ok: true } } } })

/** Liveness and readiness, without credentials. */
export const HealthGroup = HttpApiGroup.make("health")
  .add(
    HttpApiEndpoint.get("alive", "/api/v1/health")
      .addSuccess(Ok("Always true.").annotations({ identifier: "Alive" }))
      .annotate(OpenApi.Transform, probe("getHealth", "The process runs."))
      .annotate(OpenApi.Summary, "200 while the process runs")
  )
  .add(
    HttpApiEndpoint.get("ready", "/api/v1/ready")
      .addSuccess(Ok("False only while the store is unavailable.").annotations({ identifier: "Ready" }))
      .annotate(OpenApi.Transform, probe("getReadiness", "Whether the store answers."))
      .annotate(OpenApi.Summary, "Whether the store answers")
  )
  .addError(InternalServerError.Wire)
  .annotate(OpenApi.Title, "Health")
  .annotate(OpenApi.Description, "Liveness and readiness; no credential is needed.")
