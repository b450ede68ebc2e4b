import { Config, Context, Option, type Redacted } from "effect"
import * as Setting from "../Setting.ts"

/** Which metrics routes there are, and who may read them. */
export interface ExposureShape {
  /** Whether `/api/metrics` is there. */
  readonly json: boolean
  /** Whether `/metrics` is there. */
  readonly prometheus: boolean
  /** The bearer token that `/metrics` wants; without one it is open to everybody. */
  readonly token: Option.Option<Redacted.Redacted>
}

/** The exposure in force: none, unless a layer says otherwise. */
export class Exposure extends Context.Reference<Exposure>()("causeway/Exposure", {
  defaultValue: (): ExposureShape => ({ json: false, prometheus: false, token: Option.none() })
}) {}

/** What the environment says about `/metrics`. */
export const config: Config.Config<Pick<ExposureShape, "prometheus" | "token">> = Config.all({
  prometheus: Setting.boolean("METRICS_PROMETHEUS", {
    description: "Whether /metrics answers, in the Prometheus text format",
    default: false
  }),
  token: Setting.optionalCredential("METRICS_TOKEN", {
    description: "Bearer token that /metrics wants; without one it is open",
    shown: "none"
  })
})
