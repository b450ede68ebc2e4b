import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as GroupLayer from "../Http/Platform/GroupLayer.ts"
import { DescriptionGroup } from "./Api.ts"
import { endpoints } from "./Endpoints.ts"

/** Serves the description of the api that it is given. */
export const layer = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: GroupLayer.ApiWith<typeof DescriptionGroup, Id, Groups, E, R>
) => GroupLayer.make(api, DescriptionGroup, "description", endpoints(api))
