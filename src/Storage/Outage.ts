import { Cause, Duration, Effect, Option } from "effect"
import type { StoreUnavailable } from "../Kv/Store.ts"
import * as Monotonic from "../Monotonic.ts"

/** The log's view of work that may fail for a while: it hears of the beginning, and of the end. */
export interface Outage {
  /** The work failed. An interruption is none of its failures. */
  readonly failed: (cause: Cause.Cause<StoreUnavailable>) => Effect.Effect<void>
  /** The work was done. */
  readonly over: Effect.Effect<void>
}

/** After the beginning of an outage the log hears of no other for so long, should failures and successes alternate. */
const quiet = Duration.toMillis("10 seconds")

/**
 * Tells the log once when work begins to fail, as a warning with the reason, and once when it works again. A defect is
 * told as an error, also in the midst of an outage, and once in each.
 */
export const make = (work: string): Outage => {
  let told: "nothing" | "failure" | "defect" = "nothing"
  let quietUntil = Number.NEGATIVE_INFINITY
  return {
    failed: cause =>
      Effect.flatMap(Monotonic.millis, now => {
        if (Cause.isInterruptedOnly(cause)) return Effect.void
        const failure = Cause.failureOption(cause)
        if (Option.isNone(failure)) {
          if (told === "defect") return Effect.void
          told = "defect"
          return Effect.logError(`${work} met a defect`, cause)
        }
        if (told !== "nothing" || now < quietUntil) return Effect.void
        told = "failure"
        quietUntil = now + quiet
        return Effect.annotateLogs(
          Effect.logWarning(`${work} fails until the store is back`),
          "reason",
          failure.value.reason
        )
      }),
    over: Effect.suspend(() => {
      if (told === "nothing") return Effect.void
      told = "nothing"
      return Effect.logInfo(`${work} works again`)
    })
  }
}
