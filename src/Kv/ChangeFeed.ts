/**
 * Followers of the change log: polls that wait, Server-Sent Events and WebSockets.
 */
import { Context, Duration, Effect, Layer, type Stream } from "effect"
import * as Direct from "../Direct.ts"
import { DrainingSignal } from "../Http/DrainingSignal.ts"
import type { Upgrade } from "../Http/WebSocket.ts"
import { type FeedBusy, FollowerSlots } from "./ChangeFeed/FollowerSlots.ts"
import * as Limits from "./ChangeFeed/FollowLimits.ts"
import * as LogWaiters from "./ChangeFeed/LogWaiters.ts"
import * as LongPoll from "./ChangeFeed/LongPoll.ts"
import type { Page } from "./ChangeFeed/Page.ts"
import * as Pages from "./ChangeFeed/Pages.ts"
import * as ServerSentEvents from "./ChangeFeed/ServerSentEvents.ts"
import * as WebSockets from "./ChangeFeed/WebSockets.ts"
import { ChangeLog, type ChangeQuery, type HistoryTrimmed } from "./ChangeLog.ts"
import type { StoreUnavailable } from "./Store.ts"

export { FeedBusy } from "./ChangeFeed/FollowerSlots.ts"
export { FollowLimits, type FollowLimitsShape } from "./ChangeFeed/FollowLimits.ts"
export type { Page } from "./ChangeFeed/Page.ts"

/** Follows the change log for clients. A follower sees every matching change once and in order. */
export class ChangeFeed extends Context.Tag("causeway/ChangeFeed")<
  ChangeFeed,
  {
    /**
     * A page with all that was committed before the call; where there is nothing yet, the first change or the end
     * of `wait`, whichever comes first. An `after` beyond the end of the log is answered at once. `FeedBusy` only where
     * the poll would have to wait.
     */
    readonly poll: (
      query: ChangeQuery,
      wait: Duration.Duration
    ) => Effect.Effect<Page, StoreUnavailable | HistoryTrimmed | FeedBusy>
    /**
     * Server-Sent Events from `query.after` on; `limit` bounds a read, not the stream. The stream goes on after the
     * store was unavailable. It ends when the service drains, and when its position is older than the history.
     */
    readonly events: (
      query: ChangeQuery
    ) => Effect.Effect<Stream.Stream<Uint8Array>, StoreUnavailable | HistoryTrimmed | FeedBusy>
    /** Makes a WebSocket of a request that follows from `query.after` on. */
    readonly webSocket: (query: ChangeQuery) => Effect.Effect<Upgrade, StoreUnavailable | HistoryTrimmed | FeedBusy>
    /** Followers at present: polls that wait, event streams and WebSockets. */
    readonly watchers: Effect.Effect<number>
    /** Changes between the WebSocket furthest behind and the end of the log, as far as that is known. */
    readonly lag: Effect.Effect<number>
  }
>() {}

/** A feed of the log, within {@link Limits.FollowLimits}. */
export const layer: Layer.Layer<ChangeFeed, never, ChangeLog | DrainingSignal> = Layer.scoped(
  ChangeFeed,
  Effect.gen(function* () {
    const draining = yield* DrainingSignal
    const log = yield* ChangeLog
    const limits = yield* Limits.FollowLimits
    const slots = new FollowerSlots(limits.watchers, draining.hasBegun)
    const pages = yield* Pages.make
    const waiters = yield* LogWaiters.make(pages)
    const webSockets = yield* WebSockets.make(pages, slots, limits.unsentBytes)

    const waitFor = Effect.fn("ChangeFeed.poll")(
      (rest: ChangeQuery, wait: Duration.Duration): Effect.Effect<Page, Pages.ReadFailure | FeedBusy> =>
        Effect.acquireUseRelease(
          slots.acquire,
          () => LongPoll.wait(pages, waiters, rest, wait),
          () => Effect.sync(() => slots.release())
        )
    )

    return {
      // A poll that need not wait has no span of its own: it would cost more than the poll.
      poll: (query, wait) =>
        Direct.flatMap(pages.fresh(query), (first): ReturnType<typeof waitFor> => {
          const tells = first.count > 0 || first.lastSeq < query.after
          if (tells || Duration.toMillis(wait) === 0 || draining.hasBegun()) return Effect.succeed(first)
          return waitFor({ ...query, after: first.lastSeq }, wait)
        }),

      events: Effect.fn("ChangeFeed.events")(function* (query) {
        yield* slots.check
        const first = yield* pages.fresh(query)
        return ServerSentEvents.make(pages, waiters, draining, slots, query, first)
      }),

      webSocket: Effect.fn("ChangeFeed.webSocket")(function* (query) {
        yield* slots.check
        const first = yield* pages.fresh(query)
        // Others may have taken the last slot meanwhile.
        yield* slots.check
        return webSockets.upgrade(query, first)
      }),

      watchers: Effect.sync(() => slots.count),

      lag: Effect.map(
        Effect.catchAll(log.lastSeq, () => Effect.sync(pages.end)),
        end => Math.max(0, end - (webSockets.lowest() ?? end))
      )
    }
  })
)
