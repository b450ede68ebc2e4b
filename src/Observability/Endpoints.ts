import { Effect, Option } from "effect"
import * as Auth from "../Auth/Auth.ts"
import { NotFound, Unauthorized } from "../Http/ApiError.ts"
import * as Endpoints from "../Http/Endpoints.ts"
import { json, type Reply } from "../Http/Reply.ts"
import { MetricsGroup, prometheusType } from "./Api.ts"
import { Metrics } from "./Metrics.ts"
import { MetricsRoutes } from "./MetricsRoutes.ts"

const hidden = new NotFound({ error: "Not found" })

const asJson = Effect.gen(function* () {
  const routes = yield* MetricsRoutes
  if (!routes.json) return yield* hidden
  const metrics = yield* Metrics
  return json(yield* metrics.json)
})

const asText = (authorization: string | undefined) =>
  Effect.gen(function* () {
    const routes = yield* MetricsRoutes
    if (!routes.prometheus) return yield* hidden
    const admits = Auth.make({ read: routes.token, write: Option.none() })
    if (Option.isSome(routes.token) && admits.accessOf(authorization) === undefined) {
      return yield* Unauthorized.answer()
    }
    const metrics = yield* Metrics
    const reply: Reply = { status: 200, headers: { "content-type": prometheusType }, body: yield* metrics.prometheus }
    return reply
  })

/** The handlers of the `metrics` group. */
export const endpoints = Endpoints.of(MetricsGroup, {
  json: () => asJson,
  prometheus: ({ incoming }) => asText(incoming.authorization)
})
