/** The handlers of the change feed: polls, Server-Sent Events and WebSockets. */

import { type Context, Duration, Effect, Either, Exit, Stream } from "effect"
import * as Direct from "../../base/Direct.ts"
import type { LimitsShape } from "../../base/Limits.ts"
import { type ApiError, Forbidden, Gone, type ServiceUnavailable } from "../../Http/ApiError.ts"
import * as Compression from "../../Http/Compression.ts"
import type { Incoming } from "../../Http/Endpoints.ts"
import type { Admits } from "../../Http/Origin.ts"
import * as Reply from "../../Http/Reply.ts"
import { upgradeFailed } from "../../Http/WebSocket.ts"
import * as ServerSentEvents from "../ChangeFeed/ServerSentEvents.ts"
import type { ChangeFeed, FollowFailure, FollowQuery, Page } from "../ChangeFeed.ts"
import * as Entry from "../Entry.ts"
import {
  type ChangesParams,
  defaultPage,
  epochHeader,
  type FollowParams,
  maxPage,
  moreHeader,
  trimmedHeader
} from "../Requests.ts"
import type { Selection, Store } from "../Store.ts"
import * as Lists from "./Lists.ts"
import * as Operations from "./Operations.ts"

/** The part of the log that a request selects. */
type FeedParams = Omit<typeof FollowParams.Type, "initial">

/** The part of the log that a request may follow. */
const queryOf = (params: FeedParams, { identity }: Incoming, limits: LimitsShape): Operations.Checked<FollowQuery> => {
  const { tenant: asked = "", after = 0, limit = defaultPage, epoch = "", namespace, prefix } = params
  return Either.zipWith(
    Operations.followedTenant(asked, identity),
    checkPart(namespace, prefix, identity, limits),
    tenant => ({
      tenant,
      namespace,
      prefix,
      after,
      limit: Math.min(limit, maxPage),
      epoch: epoch === "" ? undefined : epoch
    })
  )
}

/** Checks a namespace and a prefix of its keys, if they are given. */
const checkPart = (
  namespace: string | undefined,
  prefix: string | undefined,
  sender: Operations.Sender,
  limits: LimitsShape
): Operations.Checked<void> => {
  if (namespace === undefined) {
    return prefix === undefined ? Either.void : Either.left(Operations.badRequest("prefix requires a namespace"))
  }
  const checked = Operations.namespace(namespace, sender, limits)
  return Either.isLeft(checked) || prefix === undefined ? checked : Operations.text("prefix", prefix)
}

/** The headers of pages. They are made once for all pages of the current epoch. */
const pageHeaders = (): ((page: Page) => Readonly<Record<string, string>>) => {
  let atEnd = Reply.jsonHeaders({})
  let before = atEnd
  return ({ epoch, hasMore }) => {
    if (atEnd[epochHeader] !== epoch) {
      atEnd = Reply.jsonHeaders({ [epochHeader]: epoch })
      before = { ...atEnd, [moreHeader]: "true" }
    }
    return hasMore ? before : atEnd
  }
}

/** The id of an event: the `seq` after which to continue, and the epoch of the log, which a client may omit. */
const eventId = /^(\d{1,16})(?:@([\x21-\x7e]{1,64}))?$/

/** Continues after the last event that a client received. A browser that has received none may send an empty id. */
const resumed = (params: FeedParams, lastEventId: string | undefined): Operations.Checked<FeedParams> => {
  if (lastEventId === undefined || lastEventId === "") return Either.right(params)
  const [, seq, epoch] = eventId.exec(lastEventId) ?? []
  if (seq === undefined) return Either.left(Operations.badRequest("Last-Event-ID must be the id of an event"))
  return Either.right({ ...params, after: Number(seq), ...(epoch === undefined ? {} : { epoch }) })
}

interface Services {
  readonly store: Context.Tag.Service<Store>
  readonly feed: Context.Tag.Service<ChangeFeed>
  /** The pages that may open a WebSocket. */
  readonly admits: Admits
  readonly limits: LimitsShape
}

/** The HTTP error for a failure of a read of the change log. */
const failed = (error: FollowFailure): Effect.Effect<never, ServiceUnavailable | Gone> => {
  switch (error._tag) {
    case "StoreUnavailable":
      return Operations.unavailable(error)
    case "FeedBusy":
      return Effect.fail(Operations.retryLater(error.reason, error))
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

/** A page of the change log. It may wait for changes. */
const changes =
  ({ feed, limits }: Services, headersOf = pageHeaders()) =>
  (request: {
    readonly urlParams: typeof ChangesParams.Type
    readonly incoming: Incoming
  }): Effect.Effect<Reply.Reply, ApiError> =>
    Direct.suspend((): Effect.Effect<Reply.Reply, ApiError> => {
      const query = queryOf(request.urlParams, request.incoming, limits)
      if (Either.isLeft(query)) return Exit.fail(query.left)
      return Direct.matchEffect(feed.poll(query.right, Duration.seconds(request.urlParams.wait ?? 0)), {
        onFailure: failed,
        onSuccess: page => Compression.compress(Reply.jsonWith(page.answer, headersOf(page)), request.incoming)
      })
    })

/** The selection of the present entries that a follower first receives; `undefined` if it receives none. */
const initialOf = (
  { initial, namespace, prefix = "" }: typeof FollowParams.Type,
  { tenant }: FollowQuery
): Operations.Checked<Selection | undefined> => {
  if (initial !== "1") return Either.right(undefined)
  if (namespace === undefined) return Either.left(Operations.badRequest("initial requires a namespace"))
  // No change of its entries would follow.
  if (tenant !== "" && tenant !== Entry.tenantOf(namespace))
    return Either.left(Operations.badRequest("initial: the namespace does not belong to the tenant"))
  return Either.right({ namespace, prefix })
}

const eventStream = (events: Stream.Stream<Uint8Array>, release?: Effect.Effect<void>) =>
  Reply.stream("text/event-stream", events, { "cache-control": "no-store", "x-accel-buffering": "no" }, release)

/** The present entries, from one snapshot, and then what follows. */
const initialStream = ({ feed, store }: Services, query: FollowQuery, selection: Selection) =>
  Lists.withList(store, selection, ({ close, list }, restore) =>
    restore(feed.events({ ...query, after: list.lastSeq, epoch: list.epoch })).pipe(
      Effect.onError(() => close),
      Effect.catchAll(failed),
      Effect.map(events =>
        eventStream(Stream.concat(Stream.ensuring(ServerSentEvents.initial(list), close), events), close)
      )
    )
  )

/** The change log as Server-Sent Events; `Last-Event-ID` takes precedence over `after`, and over `initial`. */
const changesStream = (services: Services) =>
  Effect.fnUntraced(function* (request: {
    readonly urlParams: typeof FollowParams.Type
    readonly incoming: Incoming
    readonly headers: { readonly "last-event-id"?: string }
  }) {
    const params = yield* resumed(request.urlParams, request.headers["last-event-id"])
    const query = yield* queryOf(params, request.incoming, services.limits)
    const initial = yield* initialOf(request.urlParams, query)
    if (initial !== undefined && params === request.urlParams) return yield* initialStream(services, query, initial)
    return eventStream(yield* Effect.catchAll(services.feed.events(query), failed))
  })

/** The change log over a WebSocket. */
const changesSocket = ({ admits, feed, limits, store }: Services) =>
  Effect.fnUntraced(function* (request: { readonly urlParams: typeof FollowParams.Type; readonly incoming: Incoming }) {
    const query = yield* queryOf(request.urlParams, request.incoming, limits)
    const initial = yield* initialOf(request.urlParams, query)
    const { host, origin, upgradeProblem } = request.incoming
    if (upgradeProblem !== undefined) return yield* upgradeFailed(upgradeProblem)
    if (!admits(origin, host)) return yield* new Forbidden({ error: "This origin may not connect" })
    const upgrade = initial === undefined ? feed.webSocket(query) : feed.webSocketWith(query, store.listAll(initial))
    return Reply.webSocket(yield* Effect.catchAll(upgrade, failed))
  })

/** The handlers of the endpoints under `/changes`. */
export const make = (services: Services) => ({
  changes: changes(services),
  changesStream: changesStream(services),
  changesSocket: changesSocket(services)
})
