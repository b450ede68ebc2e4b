import * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as OpenApi from "@effect/platform/OpenApi"
import { Schema } from "effect"
import { ReadAccess } from "../Auth/Api.ts"
import { InternalServerError } from "../Http/ApiError.ts"
import { operation } from "./Describe.ts"

const described = operation({
  operationId: "getOpenApi",
  answers: { 200: { description: "The description of every endpoint of this service." } }
})

/** The service's description of itself. */
export const DescriptionGroup = HttpApiGroup.make("description")
  .add(
    HttpApiEndpoint.get("openapi", "/api/v1/openapi.json")
      .addSuccess(
        Schema.Record({ key: Schema.String, value: Schema.Unknown }).annotations({ identifier: "OpenApiDocument" })
      )
      .annotate(OpenApi.Transform, described)
      .annotate(OpenApi.Summary, "This document, OpenAPI 3.0.3")
  )
  .addError(InternalServerError.Wire)
  .middleware(ReadAccess)
  .annotate(OpenApi.Title, "Description")
  .annotate(OpenApi.Description, "The service as machines read it.")
