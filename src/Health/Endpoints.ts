import * as Endpoints from "../Http/Endpoints.ts"
import { HealthGroup } from "./Api.ts"
import * as Handlers from "./Handlers.ts"

/** The handlers of the `health` group. */
export const endpoints = Endpoints.of(HealthGroup, {
  status: () => Handlers.status,
  alive: () => Handlers.alive,
  ready: () => Handlers.ready
})
