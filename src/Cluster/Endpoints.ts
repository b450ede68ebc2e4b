import * as Endpoints from "../Http/Endpoints.ts"
import { ClusterGroup } from "./Api.ts"
import * as Handlers from "./Handlers.ts"

/** The handlers of the `cluster` group. */
export const endpoints = Endpoints.of(ClusterGroup, {
  status: () => Handlers.status,
  leader: () => Handlers.leader,
  join: () => Handlers.membership,
  remove: () => Handlers.membership
})
