import type * as HttpApi from "@effect/platform/HttpApi"
import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import { Effect } from "effect"
import * as Endpoints from "../Http/Endpoints.ts"
import { json } from "../Http/Reply.ts"
import { DescriptionGroup } from "./Api.ts"
import * as Document from "./Document.ts"

/** What makes the document of the client protocol is loaded when it is first asked for. */
const asyncApi = Effect.promise(() => import("../Gateway/AsyncApi.ts"))

/** The handlers of the `description` group, which describe this api: each document is made by its first request. */
export const endpoints = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: HttpApi.HttpApi<Id, Groups, E, R>
) =>
  Endpoints.of(DescriptionGroup, {
    openapi: () => Effect.sync(() => json(Document.text(api))),
    asyncapi: () => Effect.map(asyncApi, AsyncApi => json(AsyncApi.text()))
  })
