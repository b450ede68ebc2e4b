/** Answers the cluster routes: the backing store is the cluster. */
import { Effect } from "effect"
import { Gone } from "../../Http/ApiError.ts"
import * as Endpoints from "../../Http/Endpoints.ts"
import { json } from "../../Http/Reply.ts"
import { Store } from "../../Kv/Store.ts"
import { ClusterGroup, mode } from "./Api.ts"

const membership = Effect.suspend(
  () => new Gone({ error: "Cluster membership is managed by the backing store, not by this service" })
)

/** The handlers of the `cluster` group. There is no leader: the backing store decides. */
export const endpoints = Endpoints.of(
  ClusterGroup,
  Effect.map(Store, store => ({
    status: () => Effect.map(store.ready, ok => json(JSON.stringify({ ok, mode }))),
    leader: () => Effect.succeed(json(JSON.stringify({ leader: null, address: null, mode }))),
    join: () => membership,
    remove: () => membership
  }))
)
