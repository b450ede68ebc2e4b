/** The endpoints of the descriptions of the service. */
import * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as OpenApi from "@effect/platform/OpenApi"
import { Schema } from "effect"
import { InternalServerError } from "../ApiError.ts"
import { ReadAccess } from "../Auth/Api.ts"
import { Part } from "../Contract.ts"
import { operation } from "./Describe.ts"

/** Statuses that only the authentication of a host may answer. */
const never = [403, 503]

const described = operation({
  operationId: "getOpenApi",
  summary: "This document, OpenAPI 3.0.3",
  description: "Generators make clients of it.",
  never,
  answers: { 200: { description: "The description of every endpoint of this service." } }
})

const protocolDescribed = operation({
  operationId: "getAsyncApi",
  summary: "The WebSockets, AsyncAPI 3.0",
  description: "The frames of the change feed's WebSocket and of the gateway's.",
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
  )
  .add(
    HttpApiEndpoint.get("asyncapi", "/asyncapi.json")
      .addSuccess(
        Schema.Record({ key: Schema.String, value: Schema.Unknown }).annotations({ identifier: "AsyncApiDocument" })
      )
      .annotate(OpenApi.Transform, protocolDescribed)
  )
  .addError(InternalServerError.Wire)
  .middleware(ReadAccess)
  .annotate(Part, "description")
  .annotate(OpenApi.Title, "Description")
  .annotate(OpenApi.Description, "Machine-readable descriptions of the service.")

/** The same under `/api/v1`. */
export const DescriptionGroup = DescriptionRoutes.prefix("/api/v1")
