/** The routes of the metrics, and which of them are served. */
import { Config, Context, Effect, Option, type Redacted } from "effect"
import { Metrics } from "../../base/Observability/Metrics.ts"
import * as Setting from "../../base/Setting.ts"
import { NotFound, Unauthorized } from "../../Http/ApiError.ts"
import * as Auth from "../../Http/Auth/Auth.ts"
import * as Endpoints from "../../Http/Endpoints.ts"
import { json } from "../../Http/Reply.ts"
import { MetricsGroup, prometheusType } from "./Api.ts"

/** Which routes show metrics, and their token. */
export interface MetricsRoutesShape {
  /** Whether `/api/metrics` answers. */
  readonly json: boolean
  /** Whether `/metrics` answers. */
  readonly prometheus: boolean
  /** The bearer token that `/metrics` requires; without one it is open. */
  readonly token: Option.Option<Redacted.Redacted>
}

/** The routes that are served: none by default. */
export class MetricsRoutes extends Context.Reference<MetricsRoutes>()("causeway/MetricsRoutes", {
  defaultValue: (): MetricsRoutesShape => ({ json: false, prometheus: false, token: Option.none() })
}) {}

/** `/metrics` as configuration variables. */
export const config: Config.Config<Pick<MetricsRoutesShape, "prometheus" | "token">> = Config.all({
  prometheus: Setting.boolean("METRICS_PROMETHEUS", {
    description: "Whether /metrics answers, in the Prometheus text format",
    default: false
  }),
  token: Setting.optionalCredential("METRICS_TOKEN", {
    description: "Bearer token that /metrics wants; without one it is open"
  })
})

/** The handlers of the `metrics` group. */
export const endpoints = Endpoints.of(
  MetricsGroup,
  Effect.gen(function* () {
    const routes = yield* MetricsRoutes
    const metrics = yield* Metrics
    const hidden = Effect.fail(new NotFound({ error: "Not found" }))
    const accessOf = Auth.accessBy({ read: routes.token, write: Option.none() })
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
