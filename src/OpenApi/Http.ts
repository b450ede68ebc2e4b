import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import { Effect } from "effect"
import * as GroupLayer from "../Http/GroupLayer.ts"
import { json, respond } from "../Http/Reply.ts"
import { DescriptionGroup } from "./Api.ts"
import * as Document from "./Document.ts"

/** Serves the description of the api that it is given: the document is made once, by the first request. */
export const layer = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: GroupLayer.ApiWith<typeof DescriptionGroup, Id, Groups, E, R>
) =>
  GroupLayer.make(api, DescriptionGroup, "description", handlers =>
    handlers.handle("openapi", () => respond(Effect.sync(() => json(Document.text(api)))))
  )
