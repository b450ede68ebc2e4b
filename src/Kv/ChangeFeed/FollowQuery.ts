import { type Effect, Exit, Schema } from "effect"
import * as Direct from "../../Direct.ts"
import type { ChangeQuery } from "../ChangeLog.ts"
import type { Page } from "./Page.ts"
import type { ReadFailure } from "./Pages.ts"

/** The log is another one than the follower knows, so that its position means nothing there: list again. */
export class LogReplaced extends Schema.TaggedError<LogReplaced>()("LogReplaced", {
  /** That of the log there is. */
  epoch: Schema.String
}) {}

/** Which part of the log a follower wants, and of which log. */
export interface FollowQuery extends ChangeQuery {
  /** The epoch of the log that `after` is a position of, if the follower knows it. */
  readonly epoch?: string | undefined
}

/** Whether what was read is of another log than the follower knows. */
export const isOfOther = (
  { epoch }: { readonly epoch?: string | undefined },
  read: { readonly epoch: string }
): boolean => epoch !== undefined && epoch !== read.epoch

/** A read that fails where it is of another log than the follower knows. The effect is direct where the read is. */
export const ofKnownLog = (
  query: FollowQuery,
  read: Effect.Effect<Page, ReadFailure>
): Effect.Effect<Page, ReadFailure | LogReplaced> => {
  if (query.epoch === undefined) return read
  const replacedBy = (result: Page | ReadFailure): LogReplaced | undefined =>
    "epoch" in result && isOfOther(query, result) ? new LogReplaced({ epoch: result.epoch }) : undefined
  return Direct.matchEffect(read, {
    onFailure: error => Exit.fail(replacedBy(error) ?? error),
    onSuccess: (page): Exit.Exit<Page, LogReplaced> => {
      const replaced = replacedBy(page)
      return replaced === undefined ? Exit.succeed(page) : Exit.fail(replaced)
    }
  })
}
