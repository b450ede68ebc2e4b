import * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as OpenApi from "@effect/platform/OpenApi"
import { Schema } from "effect"
import { ReadAccess } from "../Auth/Api.ts"
import { InternalServerError } from "../Http/ApiError.ts"
import { Part } from "../Http/Contract.ts"
import { operation } from "./Describe.ts"

/** Statuses that only the authentication of a host may answer. */
const never = [403, 503]

const described = operation({
  operationId: "getOpenApi",
  never,
  answers: { 200: { description: "The description of every endpoint of this service." } }
})

const protocolDescribed = operation({
  operationId: "getAsyncApi",
  never,
  answers: { 200: { description: "The description of the WebSockets: the change feed's, and the gateway's `/ws`." } }
})

/** The machine-readable descriptions of the service, under any prefix. */
export const DescriptionRoutes = HttpApiGroup.make("description")
  .add(
    HttpApiEndpoint.get("openapi", "/openapi.json")
      .addSuccess(
        Schema.Record({ key: Schema.String, value: Schema.Unknown }).annotations({ identifier: "OpenApiDocument" })
      )
      .annotate(OpenApi.Transform, described)
      .annotate(OpenApi.Summary, "This document, OpenAPI 3.0.3")
      .annotate(OpenApi.Description, "Generators make clients of it.")
  )
  .add(
    HttpApiEndpoint.get("asyncapi", "/asyncapi.json")
      .addSuccess(
        Schema.Record({ key: Schema.String, value: Schema.Unknown }).annotations({ identifier: "AsyncApiDocument" })
      )
      .annotate(OpenApi.Transform, protocolDescribed)
      .annotate(OpenApi.Summary, "The WebSockets, AsyncAPI 3.0")
      .annotate(OpenApi.Description, "The frames of the change feed's WebSocket and of the gateway's.")
  )
  .addError(InternalServerError.Wire)
  .middleware(ReadAccess)
  .annotate(Part, "description")
  .annotate(OpenApi.Title, "Description")
  .annotate(OpenApi.Description, "Machine-readable descriptions of the service.")

/** The same under `/api/v1`. */
export const DescriptionGroup = DescriptionRoutes.prefix("/api/v1")
