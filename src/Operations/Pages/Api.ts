/**
 * The routes of the web pages of the service. The files are public: a page requests its data with the credential of its
 * user. The routes are not part of the OpenAPI document.
 */
import * as HttpApiEndpoint from "@effect/platform/HttpApiEndpoint"
import * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as HttpApiSchema from "@effect/platform/HttpApiSchema"
import * as OpenApi from "@effect/platform/OpenApi"
import { Schema } from "effect"
import { InternalServerError, NotFound } from "../../Http/ApiError.ts"
import { Part } from "../../Http/Contract.ts"

const Html = Schema.String.pipe(HttpApiSchema.withEncoding({ kind: "Text", contentType: "text/html; charset=utf-8" }))

const AssetPath = Schema.Struct({ file: Schema.String })

/** The console. The path of its page ends with a slash, so that its relative references work under any prefix. */
export const ConsoleGroup = HttpApiGroup.make("console")
  .add(HttpApiEndpoint.get("address", "/console").addSuccess(HttpApiSchema.Empty(308)))
  .add(HttpApiEndpoint.get("page", "/console/").addSuccess(Html))
  .add(HttpApiEndpoint.get("asset", "/console/assets/:file").setPath(AssetPath).addSuccess(Schema.String))
  .addError(NotFound.Wire)
  .addError(InternalServerError.Wire)
  .annotate(OpenApi.Exclude, true)
  .annotate(Part, "console")

/** A page to talk with an agent, which is served in dev mode. */
export const ChatPageGroup = HttpApiGroup.make("chatPage")
  .add(HttpApiEndpoint.get("address", "/chat").addSuccess(HttpApiSchema.Empty(308)))
  .add(HttpApiEndpoint.get("page", "/chat/").addSuccess(Html))
  .add(HttpApiEndpoint.get("asset", "/chat/assets/:file").setPath(AssetPath).addSuccess(Schema.String))
  .addError(NotFound.Wire)
  .addError(InternalServerError.Wire)
  .annotate(OpenApi.Exclude, true)
  .annotate(Part, "chatPage")

/** The API reference, which the page renders from the OpenAPI document. */
export const ReferenceGroup = HttpApiGroup.make("reference")
  .add(HttpApiEndpoint.get("address", "/docs").addSuccess(HttpApiSchema.Empty(308)))
  .add(HttpApiEndpoint.get("page", "/docs/").addSuccess(Html))
  .add(HttpApiEndpoint.get("asset", "/docs/assets/:file").setPath(AssetPath).addSuccess(Schema.String))
  .addError(NotFound.Wire)
  .addError(InternalServerError.Wire)
  .annotate(OpenApi.Exclude, true)
  .annotate(Part, "reference")

/** The index at the root of the service. Applications that embed it have pages of their own there. */
export const IndexGroup = HttpApiGroup.make("index")
  .add(
    HttpApiEndpoint.get("index", "/")
      .addSuccess(
        Schema.Struct({
          version: Schema.String,
          console: Schema.optionalWith(Schema.String, { exact: true }),
          docs: Schema.optionalWith(Schema.String, { exact: true }),
          health: Schema.String,
          ready: Schema.String
        })
      )
      .addSuccess(HttpApiSchema.Empty(302))
  )
  .addError(InternalServerError.Wire)
  .annotate(OpenApi.Exclude, true)
