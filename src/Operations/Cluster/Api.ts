/** The endpoints of the cluster routes. */
import * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as OpenApi from "@effect/platform/OpenApi"
import { Schema } from "effect"
import { Gone, InternalServerError } from "../../Http/ApiError.ts"
import { ReadAccess } from "../../Http/Auth/Api.ts"
import { Part } from "../../Http/Contract.ts"
import { operation } from "../../Http/OpenApi/Describe.ts"
import { mapMembers } from "../../Http/OpenApi/SchemaProjection.ts"

/** The mode that the cluster endpoints report. */
export const mode = "store"

const Mode = Schema.String.annotations({ description: "What backs the service.", examples: [mode] })

/** Null, described as a nullable string for old clients. */
const NoLeader = Schema.Null.annotations({
  jsonSchema: { anyOf: [{ type: "string" }, { type: "null" }], description: "Always null." }
})

/** Statuses that only authentication by a host can answer. */
const never = [403, 503]

const status = operation({
  operationId: "getClusterStatus",
  summary: "Whether the service is healthy",
  description: "For clients that ask a cluster for its health.",
  never,
  answers: { 200: { description: "The state of the service.", example: { ok: true, mode } } }
})

const leader = operation({
  operationId: "getClusterLeader",
  summary: "The leader, which is always null",
  description: "Every node takes reads and writes.",
  never,
  answers: {
    200: {
      description: "There is no leader. The backing store needs none.",
      example: { leader: null, address: null, mode }
    }
  }
})

/** An operation that always answers 410. The body is documented but not decoded, so that a wrong one is 410 too. */
const refused = (operationId: string, title: string, example: Readonly<Record<string, string>>) =>
  operation({
    operationId,
    summary: "Always 410",
    description: "Changes nothing. The body is ignored.",
    never: [204, ...never],
    ignored: {
      schema: {
        title,
        type: "object",
        required: Object.keys(example),
        properties: mapMembers(example, () => ({ type: "string" }))
      },
      example
    },
    answers: {
      410: {
        description: "Always: cluster membership is managed by the backing store.",
        example: { error: "Cluster membership is managed by the backing store, not by this service" }
      }
    }
  })

/** Endpoints for old cluster-aware clients, under any prefix. The backing store manages membership. */
export const ClusterRoutes = HttpApiGroup.make("cluster")
  .add(
    HttpApiEndpoint.get("status", "/cluster/status")
      .addSuccess(
        Schema.Struct({
          ok: Schema.Boolean.annotations({ description: "Whether the service is healthy." }),
          mode: Mode
        }).annotations({ identifier: "ClusterStatus" })
      )
      .annotate(OpenApi.Transform, status)
  )
  .add(
    HttpApiEndpoint.get("leader", "/cluster/leader")
      .addSuccess(
        Schema.Struct({ leader: NoLeader, address: NoLeader, mode: Mode }).annotations({ identifier: "ClusterLeader" })
      )
      .annotate(OpenApi.Transform, leader)
  )
  .add(
    HttpApiEndpoint.post("join", "/cluster/join")
      .addError(Gone.Wire)
      .annotate(OpenApi.Deprecated, true)
      .annotate(
        OpenApi.Transform,
        refused("joinCluster", "JoinRequest", { nodeId: "node-1", address: "10.0.0.1:8080" })
      )
  )
  .add(
    HttpApiEndpoint.post("remove", "/cluster/remove")
      .addError(Gone.Wire)
      .annotate(OpenApi.Deprecated, true)
      .annotate(OpenApi.Transform, refused("removeFromCluster", "RemoveRequest", { nodeId: "node-1" }))
  )
  .addError(InternalServerError.Wire)
  .middleware(ReadAccess)
  .annotate(Part, "cluster")
  .annotate(OpenApi.Title, "Cluster compatibility")
  .annotate(OpenApi.Description, "For old cluster-aware clients. The backing store manages membership.")

/** The same under `/api/v1`. */
export const ClusterGroup = ClusterRoutes.prefix("/api/v1")
