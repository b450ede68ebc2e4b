import type { Context } from "effect"
import { Effect } from "effect"
import type { ChangeLog, ChangeQuery } from "../ChangeLog.ts"
import type { Page } from "./Page.ts"
import type { Pages, ReadFailure } from "./Pages.ts"

/** How far a reader has scanned the log. It moves on over what does not concern the reader. */
export interface Cursor {
  after: number
}

/** A store that woke its readers for nothing is not asked again at once. */
export const pauseAfterNothing = "20 millis"

/**
 * Waits for the next page that tells something beyond the cursor: changes, or a log that ends before it. The cursor
 * is not moved past such a page, so that nothing is lost when the caller is interrupted.
 */
export const nextPage = (
  log: Context.Tag.Service<ChangeLog>,
  pages: Pages,
  cursor: Cursor,
  query: Pick<ChangeQuery, "limit" | "tenant">
): Effect.Effect<Page, ReadFailure> =>
  Effect.gen(function* () {
    while (true) {
      yield* log.awaitPast(cursor.after)
      const page = yield* pages.next({ ...query, after: cursor.after })
      if (page.count > 0 || page.lastSeq < cursor.after) return page
      if (page.lastSeq === cursor.after) yield* Effect.sleep(pauseAfterNothing)
      cursor.after = page.lastSeq
    }
  })
