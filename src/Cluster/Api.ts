import * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as OpenApi from "@effect/platform/OpenApi"
import { Schema } from "effect"
import { ReadAccess } from "../Auth/Api.ts"
import { Gone, InternalServerError } from "../Http/ApiError.ts"

/** The backing mode that the cluster routes name. */
export const mode = "store"

/** Routes for old cluster-aware clients, under `/api/v1`; membership is the backing store's affair. */
export const ClusterGroup = HttpApiGroup.make("cluster")
  .add(
    HttpApiEndpoint.get("status", "/cluster/status")
      .addSuccess(
        Schema.Struct({ ok: Schema.Boolean, mode: Schema.String }).annotations({ identifier: "ClusterStatus" })
      )
      .annotate(OpenApi.Summary, "Whether the service is healthy")
  )
  .add(
    HttpApiEndpoint.get("leader", "/cluster/leader")
      .addSuccess(
        Schema.Struct({ leader: Schema.Null, address: Schema.Null, mode: Schema.String }).annotations({
          identifier: "ClusterLeader"
        })
      )
      .annotate(OpenApi.Summary, "The leader, which there never is")
  )
  .add(
    HttpApiEndpoint.post("join", "/cluster/join")
      .addError(Gone.Wire)
      .annotate(OpenApi.Summary, "Always 410")
      .annotate(OpenApi.Description, "Changes nothing; any body is ignored.")
  )
  .add(
    HttpApiEndpoint.post("remove", "/cluster/remove")
      .addError(Gone.Wire)
      .annotate(OpenApi.Summary, "Always 410")
      .annotate(OpenApi.Description, "Changes nothing; any body is ignored.")
  )
  .addError(InternalServerError.Wire)
  .middleware(ReadAccess)
  .prefix("/api/v1")
  .annotate(OpenApi.Title, "Cluster compatibility")
