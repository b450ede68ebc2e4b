/**
 * Notifications of the database, by which a node makes others poll at once. As they poll anyway, a lost notification
 * loses nothing. So its commit is not flushed: it would hold a lock of the whole server until then.
 */
import { Duration, type Effect } from "effect"
import { constVoid } from "effect/Function"
import type { StoreUnavailable } from "../../../Kv/Store.ts"
import { texts } from "./Encoding.ts"
import type { Pool } from "./Pool.ts"

/** The pause between two queries of a poll, and how much longer it is while notifications arrive. */
export const askInterval = Duration.millis(150)
export const askRest = Duration.millis(850)

/** Sends a notification for each payload. */
export const send = (
  pool: Pick<Pool, "read">,
  channel: string,
  payloads: ReadonlyArray<string>
): Effect.Effect<void, StoreUnavailable> =>
  pool.read({
    name: "notify",
    text: "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, p) FROM unnest($2::text[]) p",
    values: [channel, texts(payloads)],
    decode: constVoid
  })
