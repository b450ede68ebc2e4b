import { type Context, type Duration, Effect, identity, Option } from "effect"
import type { Draining } from "../../Http/Draining.ts"
import type { ChangeLog, ChangeQuery } from "../ChangeLog.ts"
import { type Cursor, nextPage } from "./Follow.ts"
import { Page } from "./Page.ts"
import type { Pages, ReadFailure } from "./Pages.ts"

/**
 * Waits for something to tell beyond `query.after`. When `duration` is over or the service drains, the answer is an
 * empty page that says how far the log was scanned.
 */
export const wait = (
  log: Context.Tag.Service<ChangeLog>,
  pages: Pages,
  draining: Context.Tag.Service<Draining>,
  query: ChangeQuery,
  duration: Duration.Duration
): Effect.Effect<Page, ReadFailure> =>
  Effect.suspend(() => {
    const cursor: Cursor = { after: query.after }
    return nextPage(log, pages, cursor, query).pipe(
      Effect.asSome,
      Effect.raceFirst(Effect.as(draining.begun, Option.none<Page>())),
      Effect.timeoutTo({ duration, onTimeout: Option.none<Page>, onSuccess: identity }),
      Effect.map(Option.getOrElse(() => Page.empty(cursor.after)))
    )
  })
