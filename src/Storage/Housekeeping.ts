/**
 * Background work on the store: entries that have expired are deleted, and old change records are removed.
 */
import { type Config, type Duration, Effect, Layer, Option } from "effect"
import { ChangeLog } from "../Kv/ChangeLog.ts"
import * as Setting from "../Setting.ts"
import * as Supervision from "../Supervision.ts"

/** How long change records are kept; for ever where it is not set. */
export const config: Config.Config<Option.Option<Duration.Duration>> = Setting.optionalDuration("CHANGES_RETENTION", {
  description: "How long change records are kept",
  shown: "for ever"
})

/** Expires entries every second, and every minute removes change records that are older than the retention. */
export const layer = (retention: Option.Option<Duration.Duration>): Layer.Layer<never, never, ChangeLog> =>
  Layer.scopedDiscard(
    Effect.gen(function* () {
      const log = yield* ChangeLog
      yield* Supervision.repeatScoped("expiry of entries", "1 second", log.expire)
      if (Option.isSome(retention)) {
        yield* Supervision.repeatScoped("retention of changes", "1 minute", log.trim(retention.value))
      }
    })
  )
