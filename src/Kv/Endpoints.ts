import { Effect } from "effect"
import * as Endpoints from "../Http/Endpoints.ts"
import { upgraded } from "../Http/Reply.ts"
import { KvGroup } from "./Api.ts"
import * as Handlers from "./Handlers.ts"
import * as WriteHandlers from "./WriteHandlers.ts"

/** The handlers of the `kv` group. */
export const endpoints = Endpoints.of(KvGroup, {
  list: ({ path, urlParams, incoming }) => Handlers.list({ path, urlParams, target: incoming.target }),
  get: Endpoints.quick(Handlers.get, Handlers.getAtOnce),
  set: WriteHandlers.set,
  delete: WriteHandlers.remove,
  batch: WriteHandlers.batch,
  changes: Handlers.changes,
  changesStream: Handlers.changesStream,
  changesSocket: ({ urlParams, incoming }) =>
    Effect.map(Handlers.changesSocket({ urlParams, upgrade: incoming.upgrade }), upgraded)
})
