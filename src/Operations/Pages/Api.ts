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
import { Part, RouteKind } from "../../Http/Contract.ts"

const Html = Schema.String.pipe(HttpApiSchema.withEncoding({ kind: "Text", contentType: "text/html; charset=utf-8" }))

const AssetPath = Schema.Struct({ file: Schema.String })

/** The routes of a page and of its files. The path of a page ends with a slash, so that its references are relative. */
const pageGroup = <const Name extends string>(name: Name, path: `/${string}`) =>
  HttpApiGroup.make(name)
    .add(HttpApiEndpoint.get("address", path).addSuccess(HttpApiSchema.Empty(308)))
    .add(HttpApiEndpoint.get("page", `${path}/`).addSuccess(Html))
    .add(HttpApiEndpoint.get("asset", `${path}/assets/:file`).setPath(AssetPath).addSuccess(Schema.String))
    .addError(NotFound.Wire)
    .addError(InternalServerError.Wire)
    .annotate(OpenApi.Exclude, true)
    .annotate(Part, name)
    .annotate(RouteKind, "monitoring")

/** The console. */
export const ConsoleGroup = pageGroup("console", "/console")

/** A page to talk with an agent, which is served in dev mode. */
export const ChatPageGroup = pageGroup("chatPage", "/chat")

/** The API reference, which the page renders from the OpenAPI document. */
export const ReferenceGroup = pageGroup("reference", "/docs")

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
  .annotate(RouteKind, "monitoring")
