/** Answers with the activity of the service. */
import { Effect } from "effect"
import * as Endpoints from "../../Http/Endpoints.ts"
import { json } from "../../Http/Reply.ts"
import { ActivityGroup } from "./Api.ts"
import { ActivityReport } from "./Report.ts"

/** The handlers of the `activity` group. */
export const endpoints = Endpoints.of(
  ActivityGroup,
  Effect.map(ActivityReport, report => ({
    activity: ({ incoming, urlParams: { seconds } }) =>
      Effect.map(
        report.read({
          lastMs: seconds === undefined ? undefined : seconds * 1000,
          tenant: incoming.identity?.tenant
        }),
        activity => json(JSON.stringify(activity), { "cache-control": "no-store" })
      )
  }))
)
