import * as Endpoints from "../Http/Endpoints.ts"
import { KvGroup } from "./Api.ts"
import * as Handlers from "./Handlers.ts"
import * as WriteHandlers from "./WriteHandlers.ts"

/** The handlers of the `kv` group. */
export const endpoints = Endpoints.of(KvGroup, {
  list: ({ path, urlParams, incoming }) => Handlers.list({ path, urlParams, target: incoming.target }),
  get: Endpoints.quick(Handlers.get, Handlers.getAtOnce),
  set: Endpoints.quick(WriteHandlers.set, WriteHandlers.setAtOnce),
  delete: Endpoints.quick(WriteHandlers.remove, WriteHandlers.removeAtOnce),
  batch: Endpoints.quick(WriteHandlers.batch, WriteHandlers.batchAtOnce),
  changes: Handlers.changes,
  changesStream: Handlers.changesStream,
  changesSocket: Handlers.changesSocket
})
