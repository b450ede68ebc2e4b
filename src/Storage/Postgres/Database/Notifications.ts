/**
 * Notifications of the database, by which a node makes others look at once. Nothing is lost with one, as they look
 * anyway, so that its commit need not be flushed: it holds a lock of the whole server until then.
 */
import type { Effect } from "effect"
import type { StoreUnavailable } from "../../../Kv/Store.ts"
import { texts } from "./Encoding.ts"
import type { Pool } from "./Pool.ts"
import type { Statement } from "./Statement.ts"

const statement: Statement = {
  name: "notify",
  text: "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, p) FROM unnest($2::text[]) p"
}

/** Sends a notification for each payload. */
export const send = (
  pool: Pick<Pool, "read">,
  channel: string,
  payloads: ReadonlyArray<string>
): Effect.Effect<void, StoreUnavailable> => pool.read(statement, [channel, texts(payloads)], () => undefined)
