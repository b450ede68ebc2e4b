import { Effect } from "effect"
import * as Endpoints from "../Http/Endpoints.ts"
import { Limits } from "../Limits.ts"
import { KvGroup } from "./Api.ts"
import { ChangeFeed } from "./ChangeFeed.ts"
import * as Handlers from "./Handlers.ts"
import { Store } from "./Store.ts"
import * as WriteHandlers from "./WriteHandlers.ts"

/** The handlers of the `kv` group. */
export const endpoints = Endpoints.of(
  KvGroup,
  Effect.gen(function* () {
    const services = { store: yield* Store, feed: yield* ChangeFeed, limits: yield* Limits, clock: yield* Effect.clock }
    return { ...Handlers.make(services), ...WriteHandlers.make(services) }
  })
)
