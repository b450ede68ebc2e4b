/** Answers questions about readiness and health. */
import { Effect } from "effect"
import * as Endpoints from "../../Http/Endpoints.ts"
import { json } from "../../Http/Reply.ts"
import { Store } from "../../Kv/Store.ts"
import { HealthGroup } from "./Api.ts"
import { Health } from "./Report.ts"

/** The handlers of the `health` group. */
export const endpoints = Endpoints.of(
  HealthGroup,
  Effect.gen(function* () {
    const health = yield* Health
    const store = yield* Store
    return {
      // 503 if the gateway cannot work without one of its dependencies.
      health: () =>
        Effect.map(health.report, report => ({
          ...json(JSON.stringify(report), { "cache-control": "no-store" }),
          status: report.status === "unhealthy" ? 503 : 200
        })),
      alive: () => Effect.succeed(json('{"ok":true}')),
      // 200 in both cases, unless the caller requests a strict status.
      ready: ({ urlParams }) =>
        Effect.map(store.ready, ok => ({ ...json(`{"ok":${ok}}`), status: ok || urlParams.strict !== "1" ? 200 : 503 }))
    }
  })
)
