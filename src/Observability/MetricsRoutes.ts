import { Config, Context, Option, type Redacted } from "effect"
import * as Setting from "../Setting.ts"

/** Which routes show metrics, and who may read them. */
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
    description: "Bearer token that /metrics wants; without one it is open",
    shown: "none"
  })
})
