/**
 * HTTP errors for failures of the store and the feed.
 */
import { Effect } from "effect"
import { BadRequest, Gone, PayloadTooLarge, PreconditionFailed, ServiceUnavailable } from "../../Http/ApiError.ts"
import type { FollowFailure } from "../ChangeFeed.ts"
import { etag } from "../Entry.ts"
import { epochHeader, trimmedHeader } from "../Requests.ts"
import type * as Store from "../Store.ts"

/** 400. The message names the part of the request, and what it must be. */
export const badRequest = (error: string): BadRequest => new BadRequest({ error })

/** 413. The message names the part of the request, its size and the limit. */
export const tooLarge = (error: string): PayloadTooLarge => new PayloadTooLarge({ error })

/** 503 as the specification words it. The reason is logged. */
export const unavailable = (error: Store.StoreUnavailable): Effect.Effect<never, ServiceUnavailable> =>
  Effect.zipRight(
    Effect.logDebug("Store unavailable").pipe(Effect.annotateLogs("reason", error.reason)),
    Effect.fail(ServiceUnavailable.later("Store unavailable"))
  )

const retryLater = (error: string, { retryAfterSeconds }: { readonly retryAfterSeconds: number }) =>
  ServiceUnavailable.later(error, retryAfterSeconds)

/** 503 for a write that found the queue full. */
export const busy = (error: Store.StoreBusy): ServiceUnavailable =>
  retryLater("Too many requests are waiting for the store", error)

/** 503 for a whole list beyond the limit of concurrent ones. */
export const tooManyLists = (error: Store.StoreBusy): ServiceUnavailable =>
  retryLater("Too many whole lists are being read; use limit", error)

/** 503 for a count beyond the limit of concurrent ones. */
export const tooManyCounts = (error: Store.StoreBusy): ServiceUnavailable =>
  retryLater("Too many lists are being counted; leave count out, or try again", error)

/** The HTTP error for a failure of a read of the change log. */
export const ofFeed = (error: FollowFailure): Effect.Effect<never, ServiceUnavailable | Gone> => {
  switch (error._tag) {
    case "StoreUnavailable":
      return unavailable(error)
    case "FeedBusy":
      return Effect.fail(retryLater(error.reason, error))
    case "HistoryTrimmed":
      return Effect.fail(
        new Gone({
          error: `Changes up to seq ${error.trimmedSeq} are no longer kept; list again and follow from Kv-Last-Seq`,
          headers: { [epochHeader]: error.epoch, [trimmedHeader]: String(error.trimmedSeq) }
        })
      )
    case "LogReplaced":
      return Effect.fail(
        new Gone({
          error: `The change log was replaced by one with the epoch ${error.epoch}; list again and follow from Kv-Last-Seq`,
          headers: { [epochHeader]: error.epoch }
        })
      )
  }
}

const currentState = (version: number | null): string =>
  version === null ? "the entry is absent" : `the entry is at version ${version}`

/** A refused PUT, DELETE or GET. ETag has the current version. */
export const entryRefused = (currentVersion: number | null): PreconditionFailed =>
  new PreconditionFailed({
    error: `Precondition failed: ${currentState(currentVersion)}`,
    headers: currentVersion === null ? {} : { etag: etag(currentVersion) }
  })

/** A refused batch. The message names the operation. */
export const batchRefused = ({
  currentVersion,
  index,
  isChangedBefore
}: Store.PreconditionFailed): PreconditionFailed => {
  const before = isChangedBefore ? ", and an earlier operation of the batch changes it" : ""
  return new PreconditionFailed({
    error: `Precondition failed at operations[${index}]: ${currentState(currentVersion)}${before}`
  })
}
