/**
 * Followers of the change log: polls that wait, Server-Sent Events and WebSockets.
 */
import { Context, Deferred, Duration, Effect, FiberId, Layer, type Stream } from "effect"
import { Draining } from "../Http/Draining.ts"
import type { Upgrade } from "../Http/WebSocket/Upgrade.ts"
import * as Bell from "./ChangeFeed/Bell.ts"
import * as Limits from "./ChangeFeed/FollowLimits.ts"
import { problemOf, UpgradeFailed } from "./ChangeFeed/Handshake.ts"
import * as Hub from "./ChangeFeed/Hub.ts"
import * as LongPoll from "./ChangeFeed/LongPoll.ts"
import type { EncodedPage } from "./ChangeFeed/Page.ts"
import * as Pages from "./ChangeFeed/Pages.ts"
import { type FeedBusy, Places } from "./ChangeFeed/Places.ts"
import * as ServerSentEvents from "./ChangeFeed/ServerSentEvents.ts"
import { ChangeLog, type ChangeQuery, type HistoryTrimmed } from "./ChangeLog.ts"
import type { StoreUnavailable } from "./Store.ts"

export type { Upgrade } from "../Http/WebSocket/Upgrade.ts"
export { FollowLimits, type FollowLimitsShape } from "./ChangeFeed/FollowLimits.ts"
export { UpgradeFailed } from "./ChangeFeed/Handshake.ts"
export type { EncodedPage } from "./ChangeFeed/Page.ts"
export { FeedBusy } from "./ChangeFeed/Places.ts"

/** Follows the change log for clients. A follower sees every matching change once and in order. */
export class ChangeFeed extends Context.Tag("causeway/ChangeFeed")<
  ChangeFeed,
  {
    /**
     * A page with all that was committed before the call; where there is nothing yet, the first change or the end
     * of `wait`, whichever comes first. An `after` beyond the log's end is answered at once. `FeedBusy` only where
     * it would have to wait.
     */
    readonly poll: (
      query: ChangeQuery,
      wait: Duration.Duration
    ) => Effect.Effect<EncodedPage, StoreUnavailable | HistoryTrimmed | FeedBusy>
    /**
     * Server-Sent Events from `query.after` on; `limit` bounds a read, not the stream. It outlasts an absence of the
     * store, and ends when the service drains or the reader falls out of the history.
     */
    readonly events: (
      query: ChangeQuery
    ) => Effect.Effect<Stream.Stream<Uint8Array>, StoreUnavailable | HistoryTrimmed | FeedBusy>
    /**
     * Makes a connection a follower. The outer effect ends with the handshake, the inner with the connection. Where
     * the outer one fails nothing was written on the socket.
     */
    readonly accept: (
      upgrade: Upgrade,
      query: ChangeQuery
    ) => Effect.Effect<Effect.Effect<void>, UpgradeFailed | StoreUnavailable | HistoryTrimmed | FeedBusy>
    /** How many follow at the moment: polls that wait, event streams and WebSockets. */
    readonly watchers: Effect.Effect<number>
    /** How many changes lie between the WebSocket furthest behind and the end of the log, as far as it is known. */
    readonly lag: Effect.Effect<number>
  }
>() {}

/** An error on a socket that nobody listens to would end the process. */
const guarded = <A, E, R>({ socket }: Upgrade, effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.acquireUseRelease(
    Effect.sync(() => {
      const ignore = () => {}
      socket.on("error", ignore)
      return ignore
    }),
    () => effect,
    ignore => Effect.sync(() => socket.off("error", ignore))
  )

/** Gives a place back when it is called, and ends those who wait. It knows nothing of the request: it lasts longer. */
const makeClosing = (places: Places) => {
  const closed = Deferred.unsafeMake<void>(FiberId.none)
  return {
    onClose: () => {
      places.leave()
      Deferred.unsafeDone(closed, Effect.void)
    },
    closed: Deferred.await(closed)
  }
}

/** A feed of the log, within {@link Limits.FollowLimits}. */
export const layer: Layer.Layer<ChangeFeed, never, ChangeLog | Draining> = Layer.scoped(
  ChangeFeed,
  Effect.gen(function* () {
    const draining = yield* Draining
    const log = yield* ChangeLog
    const limits = yield* Limits.FollowLimits
    const places = new Places(limits.watchers, draining.hasBegun)
    const pages = yield* Pages.make
    const bell = yield* Bell.make(pages)
    const hub = yield* Hub.make(pages, limits.unsentBytes)

    const waitFor = Effect.fn("ChangeFeed.poll")(
      (rest: ChangeQuery, wait: Duration.Duration): Effect.Effect<EncodedPage, Pages.ReadFailure | FeedBusy> =>
        Effect.acquireUseRelease(
          places.enter,
          () => LongPoll.wait(pages, bell, rest, wait),
          () => Effect.sync(() => places.leave())
        )
    )

    return {
      // A poll that need not wait has no span of its own: it would cost more than the poll.
      poll: (query, wait) =>
        Effect.flatMap(pages.poll(query), (first): ReturnType<typeof waitFor> => {
          const tells = first.count > 0 || first.lastSeq < query.after
          if (tells || Duration.toMillis(wait) === 0 || draining.hasBegun()) return Effect.succeed(first)
          return waitFor({ ...query, after: first.lastSeq }, wait)
        }),

      events: Effect.fn("ChangeFeed.events")(function* (query) {
        yield* places.check
        const first = yield* pages.fresh(query)
        return ServerSentEvents.make(pages, bell, draining, places, query, first)
      }),

      accept: Effect.fn("ChangeFeed.accept")(function* (upgrade, query) {
        const problem = problemOf(upgrade)
        if (problem !== undefined) return yield* new UpgradeFailed({ reason: problem })
        return yield* Effect.uninterruptibleMask(restore =>
          Effect.gen(function* () {
            yield* places.enter
            const { closed, onClose } = makeClosing(places)
            yield* guarded(
              upgrade,
              Effect.flatMap(restore(pages.fresh(query)), first => hub.adopt(upgrade, query, first, onClose))
            ).pipe(Effect.onError(() => Effect.sync(() => places.leave())))
            return closed
          })
        )
      }),

      watchers: Effect.sync(() => places.count),

      lag: Effect.map(
        Effect.catchAll(log.lastSeq, () => Effect.sync(pages.end)),
        end => Math.max(0, end - (hub.furthestBehind() ?? end))
      )
    }
  })
)
