/**
 * Updates of sessions by large events. Few of them are stored at a time, so that the updates of other sessions do not wait
 * behind many MiB; and each holds the event loop for milliseconds, which they take in turns.
 */
import { Effect } from "effect"
import { isLarge, turnOf } from "../../../Upstream/PlatformSocket.ts"
import { FairPool } from "../../FairPool.ts"

/** Runs work with events of a size. */
export type Paced = (size: number, work: Effect.Effect<void>) => Effect.Effect<void>

/** Updates by large events that are stored at a time, of all tenants and of one. */
const concurrent = 2
const concurrentOfOne = 1

/** After this time an update no longer delays others: it may wait for a store that is unavailable. */
const patience = "2 seconds"

/** Runs updates of a tenant's sessions. Small ones run at once. */
export const make = (): ((tenant: string) => Paced) => {
  const updates = new FairPool({
    name: "capacity for large events",
    capacity: concurrent,
    maxOfOne: concurrentOfOne,
    maxWaiting: Number.POSITIVE_INFINITY
  })
  return tenant => (size, update) => {
    if (!isLarge(size)) return update
    return updates
      .use(tenant, 1, claim =>
        Effect.raceFirst(
          Effect.zipRight(turnOf(size), update),
          Effect.sleep(patience).pipe(
            Effect.zipRight(Effect.sync(() => claim.release())),
            Effect.zipRight(Effect.never)
          )
        )
      )
      .pipe(Effect.catchTag("SessionsBusy", Effect.die))
  }
}
