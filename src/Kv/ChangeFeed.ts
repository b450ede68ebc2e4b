/** Followers of the change log: polls that wait, Server-Sent Events and WebSockets. */

import { Config, Context, Duration, Effect, Layer, Metric, Option, type Stream } from "effect"
import { MiB } from "../base/Bytes.ts"
import * as Direct from "../base/Direct.ts"
import { Metrics } from "../base/Observability/Metrics.ts"
import * as MetricTags from "../base/Observability/MetricTags.ts"
import * as Setting from "../base/Setting.ts"
import { DrainingSignal } from "../Http/DrainingSignal.ts"
import type { Upgrade } from "../Http/WebSocket.ts"
import type { Initial } from "./ChangeFeed/Follower.ts"
import * as LogWaiters from "./ChangeFeed/LogWaiters.ts"
import { type FeedBusy, FollowerSlots } from "./ChangeFeed/LogWaiters.ts"
import * as Pages from "./ChangeFeed/Pages.ts"
import { type FollowQuery, type LogReplaced, Page } from "./ChangeFeed/Pages.ts"
import * as ServerSentEvents from "./ChangeFeed/ServerSentEvents.ts"
import * as WebSockets from "./ChangeFeed/WebSockets.ts"
import { ChangeLog, type HistoryTrimmed } from "./ChangeLog.ts"
import type { StoreUnavailable } from "./Store.ts"

export { FeedBusy } from "./ChangeFeed/LogWaiters.ts"
export { type FollowQuery, LogReplaced, type Page } from "./ChangeFeed/Pages.ts"

export type FollowFailure = StoreUnavailable | HistoryTrimmed | LogReplaced | FeedBusy

/** Follows the change log for clients. A follower sees every matching change once and in order. */
export class ChangeFeed extends Context.Tag("causeway/ChangeFeed")<
  ChangeFeed,
  {
    /**
     * Returns a page with everything that was committed before the call. If nothing was, waits for the first change or
     * the end of `wait`. A page that does not have `hasMore` reaches the end of the log. An `after` beyond that end is
     * answered at once. Fails with `FeedBusy` only if the poll has to wait.
     */
    readonly poll: (query: FollowQuery, wait: Duration.Duration) => Effect.Effect<Page, FollowFailure>
    /**
     * Server-Sent Events from `query.after` on. `limit` bounds a read, not the stream. The stream continues after an
     * outage of the store, and reports when the log is replaced. It ends when the service drains, and when its position
     * is older than the history.
     */
    readonly events: (query: FollowQuery) => Effect.Effect<Stream.Stream<Uint8Array>, FollowFailure>
    /**
     * Upgrades a request to a WebSocket that follows the log from `query.after` on. If the log is not the one of the
     * query, the client receives a reset, and the WebSocket is closed.
     */
    readonly webSocket: (query: FollowQuery) => Effect.Effect<Upgrade, Exclude<FollowFailure, LogReplaced>>
    /** The same, but the client first receives the present entries. `query.after` is not used. */
    readonly webSocketWith: (query: FollowQuery, initial: Initial) => Effect.Effect<Upgrade, FeedBusy>
    /** The current number of followers: waiting polls, event streams and WebSockets. */
    readonly followers: Effect.Effect<number>
    /** The number of changes between the slowest WebSocket and the known end of the log. */
    readonly lag: Effect.Effect<number>
  }
>() {}

/** The default limits of followers of the change log. */
export const defaults = {
  /** The maximum number of followers: waiting polls, event streams and WebSockets together. */
  followers: 10_000,
  /**
   * Above this number of unsent bytes nothing more is sent to a WebSocket. The memory for a client is bounded by this
   * and one page of the log.
   */
  unsentBytes: MiB
}

export type FollowLimitsShape = Readonly<typeof defaults>

/** The current limits; the defaults, unless a layer provides others. */
export class FollowLimits extends Context.Reference<FollowLimits>()("causeway/FollowLimits", {
  defaultValue: (): FollowLimitsShape => defaults
}) {}

export const config: Config.Config<FollowLimitsShape> = Config.all({
  followers: Setting.integer("LIMIT_FOLLOWERS", {
    description: "Maximum number of followers of the change log: waiting polls, event streams and WebSockets",
    default: defaults.followers,
    min: 1,
    max: 1_000_000
  }),
  unsentBytes: Setting.integer("LIMIT_UNSENT_BYTES", {
    description: "Maximum number of unsent bytes of a WebSocket that follows the change log",
    default: defaults.unsentBytes,
    min: 1024,
    max: 64 * MiB
  })
})

/**
 * Waits for a page after `first`, which has no changes. After `duration`, or when the service drains, returns an empty
 * page with the position up to which the log was scanned. If the first page did not reach the end of the log, later ones
 * may be older than the request: the answer then says that there may be more.
 */
const waitForPage = (
  pages: Pages.Pages,
  waiters: LogWaiters.LogWaiters,
  query: FollowQuery,
  first: Page,
  duration: Duration.Duration
): Effect.Effect<Page, Pages.ReadFailure | LogReplaced> =>
  Effect.suspend(() => {
    const reader: LogWaiters.Reader = { query, position: first.end }
    let hasMore = first.hasMore
    const nothing = (): Page => Page.empty(reader.position.after, reader.position.epoch, hasMore)
    const found = Effect.gen(function* () {
      while ((yield* waiters.wait(reader, Number.POSITIVE_INFINITY)) !== "draining") {
        const { after } = reader.position
        const page = yield* Pages.ofKnownLog(query, pages.next({ ...query, after }))
        if (page.count > 0 || page.lastSeq < after) return hasMore && page.count > 0 ? page.continued : page
        if (page.lastSeq === after) {
          // A page without news is not older than its request.
          hasMore = false
          yield* Effect.sleep(LogWaiters.spuriousWakeupPause)
        } else hasMore ||= page.hasMore
        reader.position = page.end
      }
      return nothing()
    })
    return Effect.map(Effect.timeoutOption(found, duration), Option.getOrElse(nothing))
  })

/** A feed of the log, within {@link FollowLimits}. */
export const layer: Layer.Layer<ChangeFeed, never, ChangeLog | DrainingSignal> = Layer.scoped(
  ChangeFeed,
  Effect.gen(function* () {
    const draining = yield* DrainingSignal
    const log = yield* ChangeLog
    const limits = yield* FollowLimits
    const slots = new FollowerSlots(limits.followers, draining.hasStarted)
    const pages = yield* Pages.make
    const waiters = yield* LogWaiters.make(pages)
    const webSockets = yield* WebSockets.make(pages, slots, limits.unsentBytes)

    const waitFor = Effect.fn("ChangeFeed.poll")(
      (query: FollowQuery, first: Page, wait: Duration.Duration): Effect.Effect<Page, FollowFailure> =>
        Effect.acquireUseRelease(
          slots.acquire,
          () => waitForPage(pages, waiters, query, first, wait),
          () => Effect.sync(() => slots.release())
        )
    )

    return {
      // A poll that does not wait has no span: the span would cost more than the poll.
      poll: (query, wait) =>
        Direct.flatMap(Pages.ofKnownLog(query, pages.fresh(query)), (first): ReturnType<typeof waitFor> => {
          const hasNews = first.count > 0 || first.lastSeq < query.after
          if (hasNews || Duration.toMillis(wait) === 0 || draining.hasStarted()) return Effect.succeed(first)
          return waitFor(query, first, wait)
        }),

      events: Effect.fn("ChangeFeed.events")(function* (query) {
        yield* slots.check
        const first = yield* Pages.ofKnownLog(query, pages.fresh(query))
        return ServerSentEvents.make(pages, waiters, draining, slots, query, first)
      }),

      webSocket: Effect.fn("ChangeFeed.webSocket")(function* (query) {
        yield* slots.check
        const first = yield* Effect.catchTag(Pages.ofKnownLog(query, pages.fresh(query)), "LogReplaced", ({ epoch }) =>
          Effect.map(log.lastSeq, lastSeq => Page.empty(lastSeq, epoch))
        )
        // Other followers may have taken the last slot in the meantime.
        yield* slots.check
        return webSockets.upgrade(query, first)
      }),

      webSocketWith: (query, initial) => Effect.as(slots.check, webSockets.upgradeWith(query, initial)),

      followers: Effect.sync(() => slots.count),

      lag: Effect.map(
        Effect.catchAll(log.lastSeq, () => Effect.sync(pages.end)),
        end => Math.max(0, end - (webSockets.lowest() ?? end))
      )
    }
  })
)

const followersGauge = Metric.gauge("change_feed_followers", {
  description: "Followers of the change log: polls that wait, event streams and WebSockets."
})

const lagGauge = Metric.gauge("change_feed_lag_changes", {
  description: "Changes that were not yet sent to the slowest WebSocket."
})

/** Updates the gauges of the change feed before each snapshot of the metrics. */
export const layerMetrics: Layer.Layer<never, never, ChangeFeed | Metrics> = Layer.scopedDiscard(
  Effect.gen(function* () {
    const feed = yield* ChangeFeed
    const metrics = yield* Metrics
    const tags = yield* MetricTags.current
    yield* metrics.measure(
      Effect.zipRight(
        Effect.map(feed.followers, count => followersGauge.unsafeUpdate(count, tags)),
        Effect.map(feed.lag, count => lagGauge.unsafeUpdate(count, tags))
      )
    )
  })
)
