import { Context, type Effect } from "effect"

/** What the process has counted and measured, ready to be shown. */
export class Metrics extends Context.Tag("causeway/Metrics")<
  Metrics,
  {
    /** All series as the JSON text of `{metrics: […]}`. */
    readonly json: Effect.Effect<string>
    /** All series in the Prometheus text exposition format 0.0.4. */
    readonly prometheus: Effect.Effect<string>
  }
>() {}
