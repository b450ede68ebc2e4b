import * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as HttpApiSchema from "@effect/platform/HttpApiSchema"
import * as OpenApi from "@effect/platform/OpenApi"
import { Schema } from "effect"
import { InternalServerError } from "../Http/ApiError.ts"
import { operation } from "../OpenApi/Describe.ts"
import { Report } from "./Report.ts"

const Ok = (description: string) => Schema.Struct({ ok: Schema.Boolean.annotations({ description }) })

const probe = (operationId: string, description: string) =>
  operation({ operationId, answers: { 200: { description, example: { ok: true } } } })

const example: Report = {
  status: "ok",
  uptime: 86_400_000,
  connections: 12,
  memory: { rss: 104_857_600, heapUsed: 31_457_280, heapTotal: 52_428_800 },
  dependencies: [{ name: "agent_platform", status: "ok", latencyMs: 4 }],
  version: "0.1.0"
}

/** The report with the status that load balancers act on. */
const Unhealthy = Report.annotations({ ...HttpApiSchema.annotations({ status: 503 }), identifier: "HealthReport" })

const report = operation({
  operationId: "getGatewayHealth",
  answers: {
    200: { description: "The gateway is `ok` or `degraded`.", example },
    503: {
      description: "The gateway is `unhealthy`: the agent platform cannot be reached.",
      // No Retry-After: load balancers have their own interval.
      headers: undefined,
      example: {
        ...example,
        status: "unhealthy",
        dependencies: [{ name: "agent_platform", status: "unhealthy", latencyMs: 2000, error: "No answer within 2s" }]
      }
    }
  }
})

/** Liveness and readiness, without credentials. */
export const HealthGroup = HttpApiGroup.make("health")
  .add(
    HttpApiEndpoint.get("status", "/health")
      .addSuccess(Report)
      .addSuccess(Unhealthy)
      .annotate(OpenApi.Transform, report)
      .annotate(OpenApi.Summary, "How the gateway and its dependencies are")
      .annotate(
        OpenApi.Description,
        "For load balancers: keep what answers 200, also where it is `degraded`, and remove what answers 503 three times in a row. Dependencies that are not configured are left out."
      )
  )
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
