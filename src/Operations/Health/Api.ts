/** The endpoints of readiness and health, and their answers. */
import * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as HttpApiSchema from "@effect/platform/HttpApiSchema"
import * as OpenApi from "@effect/platform/OpenApi"
import { Schema } from "effect"
import { BadRequest, InternalServerError } from "../../Http/ApiError.ts"
import { flag, Part, RouteKind } from "../../Http/Contract.ts"
import { operation } from "../../Http/OpenApi/Describe.ts"

/** A health status. */
export const Status = Schema.Literal("ok", "degraded", "unhealthy").annotations({ identifier: "HealthStatus" })

/** A health status. */
export type Status = typeof Status.Type

/** The dependency that makes the gateway unhealthy. */
export const critical = "agent_platform"

/** The health of a dependency. */
export const Dependency = Schema.Struct({
  name: Schema.String.annotations({ description: "agent_platform, inference or replication." }),
  status: Status,
  latencyMs: Schema.optionalWith(
    Schema.Number.annotations({ description: "Duration of the probe in milliseconds, if one was sent." }),
    { exact: true }
  ),
  error: Schema.optionalWith(Schema.String.annotations({ description: "What is wrong, if anything." }), {
    exact: true
  })
}).annotations({ identifier: "DependencyHealth" })

/** The health of a dependency. */
export type Dependency = typeof Dependency.Type

const bytes = (description: string) => Schema.Number.annotations({ description })

/** One of the nodes that share a database. */
export const NodeReport = Schema.Struct({
  id: Schema.String.annotations({ description: "The id of the node, another one after each start." }),
  sessions: Schema.Int.annotations({ description: "Sessions that belong to the node." }),
  nodes: Schema.Int.annotations({ description: "Nodes that share the database, this one included." })
}).annotations({ identifier: "NodeHealth" })

/** One of the nodes that share a database. */
export type NodeReport = typeof NodeReport.Type

/** The health of the gateway. It is public, and contains no address, no credential and no tenant. */
export const Report = Schema.Struct({
  status: Status,
  uptime: Schema.Number.annotations({ description: "Milliseconds since the gateway started." }),
  connections: Schema.Number.annotations({ description: "Active subscriptions to sessions." }),
  memory: Schema.Struct({
    rss: bytes("Resident memory in bytes."),
    heapUsed: bytes("JavaScript heap in use in bytes."),
    heapTotal: bytes("JavaScript heap allocated in bytes.")
  }),
  dependencies: Schema.Array(Dependency),
  node: Schema.optionalWith(NodeReport, { exact: true }).annotations({
    description: "Where sessions are in a database that nodes share."
  }),
  version: Schema.String.annotations({ description: "The version of the gateway." })
}).annotations({ identifier: "HealthReport" })

/** The health of the gateway. */
export type Report = typeof Report.Type

/** `unhealthy` if the critical dependency is, `degraded` if any dependency is not `ok`. */
export const overall = (dependencies: ReadonlyArray<Dependency>): Status => {
  if (dependencies.some(({ name, status }) => name === critical && status === "unhealthy")) return "unhealthy"
  return dependencies.every(({ status }) => status === "ok") ? "ok" : "degraded"
}

const Ok = (description: string) => Schema.Struct({ ok: Schema.Boolean.annotations({ description }) })

const Ready = Ok("False only while the store is unavailable.").annotations({ identifier: "Ready" })

/** `Ready` with the status 503. */
const NotReady = Ready.annotations({ ...HttpApiSchema.annotations({ status: 503 }), identifier: "Ready" })

const ReadyParams = Schema.Struct({
  strict: flag(
    "With `1`, the status is 503 where `ok` is false, for load balancers and orchestrators that only know statuses."
  )
})

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
  summary: "The health of the gateway and its dependencies",
  description:
    "For load balancers. Keep an instance that answers 200, even if it is `degraded`. Remove one that answers 503 three times in a row. Dependencies that are not configured are left out.",
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

const readiness = operation({
  operationId: "getReadiness",
  summary: "Whether the store answers",
  description:
    "For a load balancer. `ok` is false while the store is unavailable. The status is 200 either way, unless `strict` is `1`.",
  answers: {
    200: { description: "Whether the store answers; with `strict=1`, that it does.", example: { ok: true } },
    400: { example: { error: 'strict: must be 0 or 1, not "yes"' } },
    503: {
      description: "With `strict=1`: the store is unavailable.",
      // No Retry-After: load balancers have their own interval.
      headers: undefined,
      example: { ok: false }
    }
  }
})

/**
 * The state of everything (`health`), liveness (`alive`) and readiness of the store (`ready`), without credentials. The
 * names are those of the paths of {@link HealthRoutes}.
 */
const at = (paths: Readonly<Record<"health" | "alive" | "ready", `/${string}`>>) =>
  HttpApiGroup.make("health")
    .add(
      HttpApiEndpoint.get("health", paths.health)
        .addSuccess(Report)
        .addSuccess(Unhealthy)
        .annotate(OpenApi.Transform, report)
    )
    .add(
      HttpApiEndpoint.get("alive", paths.alive)
        .addSuccess(Ok("Always true.").annotations({ identifier: "Alive" }))
        .annotate(
          OpenApi.Transform,
          operation({
            operationId: "getLiveness",
            summary: "200 while the process runs",
            description: "For a supervisor that starts the process again.",
            answers: { 200: { description: "The process runs.", example: { ok: true } } }
          })
        )
    )
    .add(
      HttpApiEndpoint.get("ready", paths.ready)
        .setUrlParams(ReadyParams)
        .addSuccess(Ready)
        .addSuccess(NotReady)
        .addError(BadRequest.Wire)
        .annotate(OpenApi.Transform, readiness)
    )
    .addError(InternalServerError.Wire)
    .annotate(Part, "health")
    .annotate(RouteKind, "monitoring")
    .annotate(OpenApi.Title, "Health")
    .annotate(OpenApi.Description, "Liveness and readiness. No credential is needed.")

/**
 * The paths of the service: `/health` for `health`, `/api/v1/health` for `alive`, as the contract of the store has it,
 * and `/api/v1/ready` for `ready`.
 */
export const HealthGroup = at({ health: "/health", alive: "/api/v1/health", ready: "/api/v1/ready" })

/** The same at `/health`, `/alive` and `/ready`, under any prefix. */
export const HealthRoutes = at({ health: "/health", alive: "/alive", ready: "/ready" })
