/**
 * Subscriptions to all sessions, and their number.
 */
import { type Context, Effect, Option, type Scope } from "effect"
import type { StoreUnavailable } from "../../Kv/Store.ts"
import { type History, SessionElsewhere, type SessionEvents } from "../SessionEvents.ts"
import { type Caller, type LookupError, SessionNotFound, type Subscriber, type Subscription } from "../Sessions.ts"
import type { Entity } from "./Entity.ts"
import type { SubscribeToLog } from "./LogSubscriptions.ts"
import { pagesOf } from "./Session/Subscribers.ts"
import type { SessionCache } from "./SessionCache.ts"

/** The sessions of this node and of others. */
export interface Options {
  readonly cache: Pick<SessionCache, "use">
  readonly events: Pick<Context.Tag.Service<SessionEvents>, "find" | "read">
  /** Subscriptions to sessions of other nodes. */
  readonly fromLog: SubscribeToLog
}

/**
 * Finds the history of a session in memory. A stored history that is behind the memory has lost its end, as by a
 * fail-over of the database; the session then continues with what is stored.
 */
export const findHistory = (
  events: Pick<Context.Tag.Service<SessionEvents>, "find">,
  entity: Entity
): Effect.Effect<Option.Option<History>, SessionElsewhere | StoreUnavailable> =>
  Effect.gen(function* () {
    // The store may be ahead of the memory, and not the reverse.
    const { epoch, headSeq } = entity.journal.history()
    const found = yield* events.find(entity.key)
    const isWhole = Option.exists(found, stored => stored.epoch === epoch && stored.headSeq >= headSeq)
    if (isWhole || entity.isDeleting) return found
    if (entity.journal.history().epoch === epoch) {
      entity.journal.lose()
      yield* entity.lifecycle.replaceLost()
      if (entity.isGivenUp) return yield* new SessionElsewhere({ session: entity.key })
    }
    return yield* events.find(entity.key)
  })

const subscribeTo = (events: Options["events"], entity: Entity, subscriber: Subscriber) =>
  Effect.gen(function* () {
    const found = yield* findHistory(events, entity)
    yield* Effect.acquireRelease(
      Effect.suspend((): Effect.Effect<void, SessionElsewhere | SessionNotFound> => {
        // Since the history was read.
        if (entity.isDeleted) return new SessionNotFound({ sessionId: entity.record.id })
        if (entity.isGivenUp) return new SessionElsewhere({ session: entity.key })
        entity.subscribe(subscriber)
        return Effect.void
      }),
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
        read: pagesOf(events, entity.key, { epoch, headSeq }, () => subscriber.onLost())
      }
    })
  })

/**
 * `Sessions.subscribe` and the number of subscriptions. It subscribes to the session in memory, or to the log if the
 * session belongs to another node.
 */
export const make = ({ cache, events, fromLog }: Options) => {
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
        Effect.catchTag("SessionElsewhere", () => fromLog(caller, sessionId, subscriber)),
        Effect.zipLeft(counted)
      )
  return { subscribe, count: () => subscriptions }
}
