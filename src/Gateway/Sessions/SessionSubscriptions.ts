/**
 * Subscriptions to all sessions, and their number.
 */
import { type Context, Effect, Option, type Scope } from "effect"
import type { SessionEvents } from "../SessionEvents.ts"
import type { Caller, LookupError, Sessions, Subscriber, Subscription } from "../Sessions.ts"
import type { Entity } from "./Entity.ts"
import * as HistoryPages from "./HistoryPages.ts"
import type { LogSubscriptions } from "./LogSubscriptions.ts"
import type { SessionCache } from "./SessionCache.ts"

/** The sessions of this node and of others. */
export interface Options {
  readonly cache: Pick<SessionCache, "use">
  readonly events: Pick<Context.Tag.Service<SessionEvents>, "find" | "read">
  /** Subscriptions to sessions of other nodes. */
  readonly fromLog: LogSubscriptions
}

/** Subscriptions, whichever node the session belongs to. */
export interface SessionSubscriptions {
  readonly subscribe: Context.Tag.Service<Sessions>["subscribe"]
  /** The number of subscriptions. */
  readonly count: () => number
}

const subscribeTo = (events: Options["events"], entity: Entity, subscriber: Subscriber) =>
  Effect.gen(function* () {
    const found = yield* events.find(entity.key)
    yield* Effect.acquireRelease(
      Effect.sync(() => entity.subscribe(subscriber)),
      () => Effect.sync(() => entity.unsubscribe(subscriber))
    )
    // Subscribers receive all later events. Earlier ones are read from the history.
    return yield* Effect.sync((): Subscription => {
      const { epoch, headSeq } = entity.journal.history()
      return {
        session: entity.view(),
        epoch,
        headSeq,
        trimmedSeq: Option.match(found, { onNone: () => headSeq, onSome: ({ trimmedSeq }) => trimmedSeq }),
        isElsewhere: false,
        publishedSeq: () => entity.journal.history().headSeq,
        read: HistoryPages.make(events, entity.key, { epoch, headSeq }, () => subscriber.onLost())
      }
    })
  })

/** Subscribes to the session in memory, or to the log if the session belongs to another node. */
export const make = ({ cache, events, fromLog }: Options): SessionSubscriptions => {
  let subscriptions = 0
  const counted = Effect.acquireRelease(
    Effect.sync(() => subscriptions++),
    () => Effect.sync(() => subscriptions--)
  )
  const subscribe = (
    caller: Caller,
    sessionId: string,
    subscriber: Subscriber
  ): Effect.Effect<Subscription, LookupError, Scope.Scope> =>
    cache
      .use(caller, sessionId, entity => subscribeTo(events, entity, subscriber))
      .pipe(
        Effect.catchTag("SessionElsewhere", () => fromLog.subscribe(caller, sessionId, subscriber)),
        Effect.zipLeft(counted)
      )
  return { subscribe, count: () => subscriptions }
}
