import { Effect } from "effect"
import { json, type Reply } from "../Http/Reply.ts"
import { Store } from "../Kv/Store.ts"
import { Health } from "./Health.ts"

/** How the gateway and its dependencies are; 503 where it is of no use without one of them. */
export const status = Effect.gen(function* () {
  const health = yield* Health
  const report = yield* health.report
  const reply: Reply = json(JSON.stringify(report), { "cache-control": "no-store" })
  return report.status === "unhealthy" ? { ...reply, status: 503 } : reply
})

/** 200 while the process runs. */
export const alive = Effect.succeed(json('{"ok":true}'))

/** Whether the store answers; 200 either way. */
export const ready = Effect.gen(function* () {
  const store = yield* Store
  const ok = yield* store.ready
  return json(`{"ok":${ok}}`)
})
