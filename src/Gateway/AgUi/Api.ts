/** The contract of AG-UI: a run of an agent as an event stream, and its end. */
import * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as HttpApiSchema from "@effect/platform/HttpApiSchema"
import * as OpenApi from "@effect/platform/OpenApi"
import { Schema } from "effect"
import { PayloadTooLarge } from "../../Http/ApiError.ts"
import { HistoryBody, Part, RouteKind } from "../../Http/Contract.ts"
import { CallErrors, EventStreamText, GatewayAccess, ServerErrors } from "../Api.ts"
import { Name } from "../Protocol/Fields.ts"
import * as Description from "./Description.ts"
import { RunAgentInput, RunId, ThreadId } from "./Input.ts"

const RunPath = Schema.Struct({ agentType: Name, threadId: ThreadId, runId: RunId })

/** AG-UI, under any prefix. */
export const AgUiRoutes = HttpApiGroup.make("agUi")
  .add(
    HttpApiEndpoint.post("run", "/ag-ui/:agentType")
      .setPath(Schema.Struct({ agentType: Name }))
      .setPayload(RunAgentInput)
      .addSuccess(
        EventStreamText.annotations({ description: "Server-Sent Events: each `data` is an event of AG-UI 1.0." })
      )
      .middleware(HistoryBody)
      .annotate(OpenApi.Transform, Description.run)
      .annotate(RouteKind, "stream")
  )
  .add(
    HttpApiEndpoint.del("stop", "/ag-ui/:agentType/:threadId/runs/:runId")
      .setPath(RunPath)
      .addSuccess(HttpApiSchema.Empty(204).annotations({ description: "The run has ended, or ends soon." }))
      .annotate(OpenApi.Transform, Description.stop)
  )
  .addError(CallErrors)
  .addError(ServerErrors)
  .addError(PayloadTooLarge.Wire)
  .middleware(GatewayAccess)
  .annotate(Part, "agUi")
  .annotate(OpenApi.Title, "AG-UI")
  .annotate(OpenApi.Description, "Runs of agents for clients of AG-UI, such as `HttpAgent` of `@ag-ui/client`.")

/** The same under `/api/v1`. */
export const AgUiGroup = AgUiRoutes.prefix("/api/v1")
