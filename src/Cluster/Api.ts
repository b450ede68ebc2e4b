import * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as OpenApi from "@effect/platform/OpenApi"
import { Schema } from "effect"
import { ReadAccess } from "../Auth/Api.ts"
import { Gone, InternalServerError } from "../Http/ApiError.ts"
import { operation } from "../OpenApi/Describe.ts"

/** The backing mode that the cluster routes name. */
export const mode = "store"

const Mode = Schema.String.annotations({ description: "What backs the service.", examples: [mode] })

/** Null, described as what old clients take it for: a text that may be missing. */
const Nobody = Schema.Null.annotations({
  jsonSchema: { anyOf: [{ type: "string" }, { type: "null" }], description: "Always null." }
})

const status = operation({
  operationId: "getClusterStatus",
  answers: { 200: { description: "The state of the service.", example: { ok: true, mode } } }
})

const leader = operation({
  operationId: "getClusterLeader",
  answers: {
    200: { description: "Nobody: the backing store needs no leader.", example: { leader: null, address: null, mode } }
  }
})

/** No answer but 410, whatever the types make of an endpoint without a success. */
const refused = (operationId: string) =>
  operation({
    operationId,
    never: [204],
    answers: {
      410: {
        description: "Always: cluster membership is managed by the backing store.",
        example: { error: "Cluster membership is managed by the backing store, not by this service" }
      }
    }
  })

/** Routes for old cluster-aware clients, under `/api/v1`; membership is the backing store's affair. */
export const ClusterGroup = HttpApiGroup.make("cluster")
  .add(
    HttpApiEndpoint.get("status", "/cluster/status")
      .addSuccess(
        Schema.Struct({
          ok: Schema.Boolean.annotations({ description: "Whether the service is healthy." }),
          mode: Mode
        }).annotations({ identifier: "ClusterStatus" })
      )
      .annotate(OpenApi.Transform, status)
      .annotate(OpenApi.Summary, "Whether the service is healthy")
  )
  .add(
    HttpApiEndpoint.get("leader", "/cluster/leader")
      .addSuccess(
        Schema.Struct({ leader: Nobody, address: Nobody, mode: Mode }).annotations({ identifier: "ClusterLeader" })
      )
      .annotate(OpenApi.Transform, leader)
      .annotate(OpenApi.Summary, "The leader, which there never is")
  )
  .add(
    HttpApiEndpoint.post("join", "/cluster/join")
      .setPayload(
        Schema.Struct({ nodeId: Schema.String, address: Schema.String }).annotations({ identifier: "JoinRequest" })
      )
      .addError(Gone.Wire)
      .annotate(OpenApi.Deprecated, true)
      .annotate(OpenApi.Transform, refused("joinCluster"))
      .annotate(OpenApi.Summary, "Always 410")
      .annotate(OpenApi.Description, "Changes nothing; any body is ignored.")
  )
  .add(
    HttpApiEndpoint.post("remove", "/cluster/remove")
      .setPayload(Schema.Struct({ nodeId: Schema.String }).annotations({ identifier: "RemoveRequest" }))
      .addError(Gone.Wire)
      .annotate(OpenApi.Deprecated, true)
      .annotate(OpenApi.Transform, refused("removeFromCluster"))
      .annotate(OpenApi.Summary, "Always 410")
      .annotate(OpenApi.Description, "Changes nothing; any body is ignored.")
  )
  .addError(InternalServerError.Wire)
  .middleware(ReadAccess)
  .prefix("/api/v1")
  .annotate(OpenApi.Title, "Cluster compatibility")
  .annotate(OpenApi.Description, "For old cluster-aware clients; membership is the backing store's affair.")
