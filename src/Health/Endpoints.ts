import { Effect } from "effect"
import * as Endpoints from "../Http/Endpoints.ts"
import { json, type Reply } from "../Http/Reply.ts"
import { Store } from "../Kv/Store.ts"
import { HealthGroup } from "./Api.ts"
import { Health } from "./Health.ts"

const status = Effect.gen(function* () {
  const health = yield* Health
  const report = yield* health.report
  const reply: Reply = json(JSON.stringify(report), { "cache-control": "no-store" })
  return report.status === "unhealthy" ? { ...reply, status: 503 } : reply
})

const alive = Effect.succeed(json('{"ok":true}'))

const ready = Effect.gen(function* () {
  const store = yield* Store
  const ok = yield* store.ready
  return json(`{"ok":${ok}}`)
})

/** The handlers of the `health` group. */
export const endpoints = Endpoints.of(HealthGroup, {
  status: () => status,
  alive: () => alive,
  ready: () => ready
})
