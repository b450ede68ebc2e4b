import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as GroupLayer from "../Http/Platform/GroupLayer.ts"
import { MetricsGroup } from "./Api.ts"
import { endpoints } from "./Endpoints.ts"

/** Implements the `metrics` group of an api that contains it. */
export const layer = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: GroupLayer.ApiWith<typeof MetricsGroup, Id, Groups, E, R>
) => GroupLayer.make(api, MetricsGroup, "metrics", endpoints)
