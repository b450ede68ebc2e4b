import type * as HttpApiGroup from "@effect/platform/HttpApiGroup"
import * as GroupLayer from "../Http/GroupLayer.ts"
import { respond } from "../Http/Reply.ts"
import { ClusterGroup } from "./Api.ts"
import * as Handlers from "./Handlers.ts"

/** Implements the `cluster` group of an api that contains it. */
export const layer = <Id extends string, Groups extends HttpApiGroup.HttpApiGroup.Any, E, R>(
  api: GroupLayer.ApiWith<typeof ClusterGroup, Id, Groups, E, R>
) =>
  GroupLayer.make(api, ClusterGroup, "cluster", handlers =>
    handlers
      .handle("status", () => respond(Handlers.status))
      .handle("leader", () => respond(Handlers.leader))
      // Raw, so that no body is so wrong that the answer is not 410.
      .handleRaw("join", () => respond(Handlers.membership))
      .handleRaw("remove", () => respond(Handlers.membership))
  )
