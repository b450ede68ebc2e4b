import { Effect } from "effect"
import { Gone } from "../Http/ApiError.ts"
import { json } from "../Http/Reply.ts"
import { Store } from "../Kv/Store.ts"
import { mode } from "./Api.ts"

/** Whether the service is healthy, and what backs it. */
export const status = Effect.gen(function* () {
  const store = yield* Store
  const ok = yield* store.ready
  return json(JSON.stringify({ ok, mode }))
})

/** There is no leader: the backing store decides. */
export const leader = Effect.succeed(json(JSON.stringify({ leader: null, address: null, mode })))

/** Membership cannot be changed here. */
export const membership = Effect.suspend(
  () => new Gone({ error: "Cluster membership is managed by the backing store, not by this service" })
)
