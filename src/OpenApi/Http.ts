import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import type { Effect } from "effect"
import * as GroupLayer from "../Http/Platform/GroupLayer.ts"
import { DescriptionGroup } from "./Api.ts"
import { endpoints } from "./Endpoints.ts"

/** Serves the description of an api that contains the `description` group, and the AsyncAPI document beside it. */
export const layer = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: GroupLayer.ApiWith<typeof DescriptionGroup, Id, Groups, E, R>,
  asyncApi: Effect.Effect<string>
) => GroupLayer.make(api, DescriptionGroup, "description", endpoints(api, asyncApi))
