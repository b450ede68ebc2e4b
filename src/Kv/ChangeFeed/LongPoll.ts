import { type Duration, Effect, Option } from "effect"
import type { ChangeQuery } from "../ChangeLog.ts"
import { type LogWaiters, pauseAfterNothing } from "./LogWaiters.ts"
import { Page } from "./Page.ts"
import type { Pages, ReadFailure } from "./Pages.ts"

/**
 * Waits for something to tell beyond `query.after`. When `duration` is over or the service drains, the answer is an
 * empty page that says how far the log was scanned.
 */
export const wait = (
  pages: Pages,
  waiters: LogWaiters,
  query: ChangeQuery,
  duration: Duration.Duration
): Effect.Effect<Page, ReadFailure> =>
  Effect.suspend(() => {
    let after = query.after
    const found = Effect.gen(function* () {
      while ((yield* waiters.wait(after, Number.POSITIVE_INFINITY)) !== "draining") {
        const page = yield* pages.next({ ...query, after })
        if (page.count > 0 || page.lastSeq < after) return page
        if (page.lastSeq === after) yield* Effect.sleep(pauseAfterNothing)
        after = page.lastSeq
      }
      return Page.empty(after)
    })
    return Effect.map(
      Effect.timeoutOption(found, duration),
      Option.getOrElse(() => Page.empty(after))
    )
  })
