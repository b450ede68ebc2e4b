import { Effect } from "effect"
import { Gone } from "../Http/ApiError.ts"
import * as Endpoints from "../Http/Endpoints.ts"
import { json } from "../Http/Reply.ts"
import { Store } from "../Kv/Store.ts"
import { ClusterGroup, mode } from "./Api.ts"

const status = Effect.gen(function* () {
  const store = yield* Store
  const ok = yield* store.ready
  return json(JSON.stringify({ ok, mode }))
})

const leader = Effect.succeed(json(JSON.stringify({ leader: null, address: null, mode })))

const membership = Effect.suspend(
  () => new Gone({ error: "Cluster membership is managed by the backing store, not by this service" })
)

/** The handlers of the `cluster` group. */
export const endpoints = Endpoints.of(ClusterGroup, {
  status: () => status,
  leader: () => leader,
  join: () => membership,
  remove: () => membership
})
