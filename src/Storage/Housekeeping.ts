/**
 * What the store does unasked: entries that have run out become deletes in the log, and old records go.
 */
import { type Config, type Duration, Effect, Layer, Option, Schedule } from "effect"
import { ChangeLog } from "../Kv/ChangeLog.ts"
import type { StoreUnavailable } from "../Kv/Store.ts"
import * as Setting from "../Setting.ts"
import * as Supervision from "../Supervision.ts"
import * as Outage from "./Outage.ts"

/** How long change records are kept; for ever where it is not set. */
export const config: Config.Config<Option.Option<Duration.Duration>> = Setting.optionalDuration("CHANGES_RETENTION", {
  description: "How long change records are kept",
  shown: "for ever"
})

/** Repeats a chore for ever, whatever becomes of it. The log hears of the first failure of an outage, and of its end. */
const chore = (name: string, pause: Duration.DurationInput, work: Effect.Effect<number, StoreUnavailable>) =>
  Effect.suspend(() => {
    const outage = Outage.make(name)
    return Effect.matchCauseEffect(work, { onFailure: outage.failed, onSuccess: () => outage.over }).pipe(
      Effect.repeat(Schedule.spaced(pause))
    )
  })

/** Expires entries every second, and every minute removes change records that are older than the retention. */
export const layer = (retention: Option.Option<Duration.Duration>): Layer.Layer<never, never, ChangeLog> =>
  Layer.scopedDiscard(
    Effect.gen(function* () {
      const log = yield* ChangeLog
      yield* Supervision.forkScoped("expiry of entries", chore("expiry of entries", "1 second", log.expire))
      if (Option.isSome(retention)) {
        const trim = log.trim(retention.value)
        yield* Supervision.forkScoped("retention of changes", chore("retention of changes", "1 minute", trim))
      }
    })
  )
