import { Effect, Layer } from "effect"
import type * as SessionEvents from "./Postgres/SessionEvents.ts"
import type { PostgresLocation } from "./StoreUrl.ts"

/**
 * A PostgreSQL database, which several nodes may share, with entries and histories of sessions. Its client, the package
 * `pg`, is loaded when the layer is built.
 */
export const postgres = (location: PostgresLocation, options: SessionEvents.Options) =>
  Layer.unwrapEffect(
    Effect.map(
      Effect.promise(() => Promise.all([import("./Postgres.ts"), import("./Postgres/SessionEvents.ts")])),
      ([store, sessions]) => Layer.provideMerge(sessions.layer(options), store.layer(location))
    )
  )
