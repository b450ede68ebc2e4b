/**
 * Followers of the change log: polls that wait, Server-Sent Events and WebSockets.
 */
import { Config, Context, Duration, Effect, Layer, Metric, Option, type Stream } from "effect"
import * as Direct from "../Direct.ts"
import { DrainingSignal } from "../Http/DrainingSignal.ts"
import type { Upgrade } from "../Http/WebSocket.ts"
import * as MetricTags from "../MetricTags.ts"
import { Metrics } from "../Observability/Metrics.ts"
import * as Setting from "../Setting.ts"
import { type FeedBusy, FollowerSlots } from "./ChangeFeed/FollowerSlots.ts"
import type { Initial } from "./ChangeFeed/InitialFollower.ts"
import * as LogWaiters from "./ChangeFeed/LogWaiters.ts"
import { Page } from "./ChangeFeed/Page.ts"
import type { FollowQuery, LogReplaced } from "./ChangeFeed/Pages.ts"
import * as Pages from "./ChangeFeed/Pages.ts"
import * as ServerSentEvents from "./ChangeFeed/ServerSentEvents.ts"
import * as WebSockets from "./ChangeFeed/WebSockets.ts"
import { ChangeLog, type HistoryTrimmed } from "./ChangeLog.ts"
import type { StoreUnavailable } from "./Store.ts"

export { FeedBusy } from "./ChangeFeed/FollowerSlots.ts"
export type { Page } from "./ChangeFeed/Page.ts"
export { type FollowQuery, LogReplaced } from "./ChangeFeed/Pages.ts"

/** Why the log cannot be followed. */
export type FollowFailure = StoreUnavailable | HistoryTrimmed | LogReplaced | FeedBusy

/** Follows the change log for clients. A follower sees every matching change once and in order. */
export class ChangeFeed extends Context.Tag("causeway/ChangeFeed")<
  ChangeFeed,
  {
    /**
     * A page with all that was committed before the call; where there is nothing yet, the first change or the end
     * of `wait`, whichever comes first. An `after` beyond the end of the log is answered at once. `FeedBusy` only where
     * the poll would have to wait.
     */
    readonly poll: (query: FollowQuery, wait: Duration.Duration) => Effect.Effect<Page, FollowFailure>
    /**
     * Server-Sent Events from `query.after` on; `limit` bounds a read, not the stream. The stream goes on after the
     * store was unavailable. It tells when the log is replaced by another. It ends when the service drains, and when
     * its position is older than the history.
     */
    readonly events: (query: FollowQuery) => Effect.Effect<Stream.Stream<Uint8Array>, FollowFailure>
    /**
     * Makes a WebSocket of a request that follows from `query.after` on. It is closed where the log is another one than
     * the query says, after it has been told.
     */
    readonly webSocket: (query: FollowQuery) => Effect.Effect<Upgrade, Exclude<FollowFailure, LogReplaced>>
    /** The same from the entries that are there on, which the client is sent first; `query.after` is not used. */
    readonly webSocketWith: (query: FollowQuery, initial: Initial) => Effect.Effect<Upgrade, FeedBusy>
    /** Followers at present: polls that wait, event streams and WebSockets. */
    readonly followers: Effect.Effect<number>
    /** Changes between the WebSocket furthest behind and the end of the log, as far as that is known. */
    readonly lag: Effect.Effect<number>
  }
>() {}

/** The limits of followers of the change log. */
export interface FollowLimitsShape {
  /** Concurrent followers: waiting polls, event streams and WebSockets together. */
  readonly followers: number
  /**
   * Unsent bytes of one WebSocket above which nothing more is sent to it. The memory for a client is bounded by this
   * and one page of the log.
   */
  readonly unsentBytes: number
}

export const defaults: FollowLimitsShape = { followers: 10_000, unsentBytes: 1024 * 1024 }

/** The current limits; the defaults, unless a layer provides others. */
export class FollowLimits extends Context.Reference<FollowLimits>()("causeway/FollowLimits", {
  defaultValue: (): FollowLimitsShape => defaults
}) {}

/** Each limit as a configuration variable. */
export const config: Config.Config<FollowLimitsShape> = Config.all({
  followers: Setting.integer("LIMIT_FOLLOWERS", {
    description: "Most followers of the change log at a time: waiting polls, event streams and WebSockets",
    default: defaults.followers,
    min: 1,
    max: 1_000_000
  }),
  unsentBytes: Setting.integer("LIMIT_UNSENT_BYTES", {
    description: "Bytes that may lie unsent for a WebSocket that follows the change log before it gets nothing more",
    default: defaults.unsentBytes,
    min: 1024,
    max: 64 * 1024 * 1024
  })
})

/**
 * Waits for a page beyond `first`, which has no changes. After `duration`, or when the service drains, it returns an
 * empty page that says how far the log was scanned.
 */
const waitForPage = (
  pages: Pages.Pages,
  waiters: LogWaiters.LogWaiters,
  query: FollowQuery,
  first: Page,
  duration: Duration.Duration
): Effect.Effect<Page, Pages.ReadFailure | LogReplaced> =>
  Effect.suspend(() => {
    const reader: LogWaiters.Reader = { query, after: first.lastSeq }
    let { epoch } = first
    const found = Effect.gen(function* () {
      while ((yield* waiters.wait(reader, Number.POSITIVE_INFINITY)) !== "draining") {
        const { after } = reader
        const page = yield* Pages.ofKnownLog(query, pages.next({ ...query, after }))
        if (page.count > 0 || page.lastSeq < after) return page
        if (page.lastSeq === after) yield* Effect.sleep(LogWaiters.spuriousWakeupPause)
        reader.after = page.lastSeq
        epoch = page.epoch
      }
      return Page.empty(reader.after, epoch)
    })
    return Effect.map(
      Effect.timeoutOption(found, duration),
      Option.getOrElse(() => Page.empty(reader.after, epoch))
    )
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
      // A poll that need not wait has no span of its own: it would cost more than the poll.
      poll: (query, wait) =>
        Direct.flatMap(Pages.ofKnownLog(query, pages.fresh(query)), (first): ReturnType<typeof waitFor> => {
          const tells = first.count > 0 || first.lastSeq < query.after
          if (tells || Duration.toMillis(wait) === 0 || draining.hasStarted()) return Effect.succeed(first)
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
        // Others may have taken the last slot meanwhile.
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
  description: "Changes that the WebSocket furthest behind has yet to be sent."
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
