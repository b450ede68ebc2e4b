/**
 * Stores whose database is open. On a busy machine it may open later than a node waits for it at its start, and the
 * node would refuse the first requests.
 */
import { Context, Effect, Layer, Redacted } from "effect"
import { ChangeLog } from "../../src/Kv/ChangeLog.ts"
import { StoreUnavailable } from "../../src/Kv/Store.ts"
import * as Opening from "../../src/Storage/Postgres/Opening.ts"
import * as Postgres from "../../src/Storage/Postgres.ts"

/** True time, whatever the clock of the test: sockets and timers have their turn. */
export const pause = Effect.promise(() => new Promise<void>(resolve => setTimeout(resolve, 10)))

/** Tries again while the store is unavailable. */
export const persist = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.retry(effect, { while: error => Effect.as(pause, error instanceof StoreUnavailable) })

const isLate = (error: unknown): boolean =>
  error instanceof StoreUnavailable &&
  /not open: (?:no answer within|timeout expired|Query read timeout|its schema is brought)/.test(error.reason)

/** Waits until the database is open. An unavailable one is not waited for. */
const opening = ({ log }: { readonly log: Context.Tag.Service<ChangeLog> }): Effect.Effect<void> =>
  Effect.ignore(Effect.retry(log.lastSeq, { while: error => Effect.as(pause, isLate(error)) }))

/** The store of a node, whose database is open or unavailable. */
export const layer = (options: Postgres.Options) =>
  Layer.tap(Postgres.layer(options), context => opening({ log: Context.get(context, ChangeLog) }))

/** Opens the database without a node: its schema is up to date then. */
export const open = (url: string) => persist(Opening.open(Redacted.make(url)))
