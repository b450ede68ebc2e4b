/** Answers with the descriptions of the service: OpenAPI for HTTP, AsyncAPI for WebSockets. */
import type * as HttpApi from "@effect/platform/HttpApi"
import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import { Effect } from "effect"
import type { NotFound } from "../ApiError.ts"
import { compressed } from "../Compression.ts"
import * as Endpoints from "../Endpoints.ts"
import { json } from "../Reply.ts"
import { DescriptionGroup } from "./Api.ts"
import * as Document from "./Document.ts"

/**
 * The handlers of the `description` group. `asyncApi` is the JSON text of the application's AsyncAPI document, or fails
 * if there is none. The first request creates the OpenAPI document of `api`.
 */
export const endpoints = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: HttpApi.HttpApi<Id, Groups, E, R>,
  asyncApi: Effect.Effect<string, NotFound>
) =>
  Endpoints.of(
    DescriptionGroup,
    Effect.succeed({
      openapi: ({ incoming }) =>
        compressed(
          Effect.sync(() => json(Document.text(api))),
          incoming
        ),
      asyncapi: ({ incoming }) =>
        compressed(
          Effect.map(asyncApi, text => json(text)),
          incoming
        )
    })
  )
