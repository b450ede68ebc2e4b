import { Effect, Option } from "effect"
import * as Auth from "../Auth/Auth.ts"
import { NotFound, Unauthorized } from "../Http/ApiError.ts"
import * as Endpoints from "../Http/Endpoints.ts"
import { json } from "../Http/Reply.ts"
import { MetricsGroup, prometheusType } from "./Api.ts"
import { Metrics } from "./Metrics.ts"
import { MetricsRoutes } from "./MetricsRoutes.ts"

/** The handlers of the `metrics` group. */
export const endpoints = Endpoints.of(
  MetricsGroup,
  Effect.gen(function* () {
    const routes = yield* MetricsRoutes
    const metrics = yield* Metrics
    const hidden = Effect.fail(new NotFound({ error: "Not found" }))
    const { accessOf } = Auth.make({ read: routes.token, write: Option.none() })
    return {
      json: () => (routes.json ? Effect.map(metrics.json, text => json(text)) : hidden),
      prometheus: ({ incoming }) => {
        if (!routes.prometheus) return hidden
        if (Option.isSome(routes.token) && accessOf(incoming.authorization) === undefined) {
          return Effect.fail(Unauthorized.answer())
        }
        const headers = { "content-type": prometheusType }
        return Effect.map(metrics.prometheus, body => ({ status: 200, headers, body }))
      }
    }
  })
)
