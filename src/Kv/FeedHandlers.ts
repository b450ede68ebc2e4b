/**
 * The handlers of the change feed: polls, Server-Sent Events and WebSockets.
 */
import { type Context, Duration, Effect, Either, Exit } from "effect"
import * as Direct from "../Direct.ts"
import { type ApiError, Forbidden } from "../Http/ApiError.ts"
import type { Incoming } from "../Http/Endpoints.ts"
import type { Admits } from "../Http/Origin.ts"
import * as Reply from "../Http/Reply.ts"
import { upgradeFailed } from "../Http/WebSocket.ts"
import type { ChangeFeed } from "./ChangeFeed.ts"
import type { ChangeQuery } from "./ChangeLog.ts"
import * as Errors from "./Errors.ts"
import * as Operations from "./Operations.ts"
import { defaultPage, maxPage } from "./Requests.ts"
import { followed } from "./TenantLimit.ts"

/** The part of the log that a request asks for. */
interface FeedParams {
  readonly tenant?: string
  readonly after?: number
  readonly limit?: number
}

/** The part of the log that a request may follow. */
const queryOf = (params: FeedParams, { identity }: Incoming): Operations.Checked<ChangeQuery> => {
  const { tenant: asked = "", after = 0, limit = defaultPage } = params
  const problem = Operations.text("tenant", asked)
  if (Either.isLeft(problem)) return Either.left(problem.left)
  return Either.map(followed(identity, asked), tenant => ({ tenant, after, limit: Math.min(limit, maxPage) }))
}

type Feed = Context.Tag.Service<ChangeFeed>

/** A page of the change log. It may wait for one. */
const changes =
  (feed: Feed) =>
  (request: {
    readonly urlParams: FeedParams & { readonly wait?: number }
    readonly incoming: Incoming
  }): Effect.Effect<Reply.Reply, ApiError> =>
    Direct.suspend((): Effect.Effect<Reply.Reply, ApiError> => {
      const query = queryOf(request.urlParams, request.incoming)
      if (Either.isLeft(query)) return Exit.fail(query.left)
      return Direct.matchEffect(feed.poll(query.right, Duration.seconds(request.urlParams.wait ?? 0)), {
        onFailure: Errors.ofFeed,
        onSuccess: page => Exit.succeed(Reply.json(page.answer))
      })
    })

/** The change log as Server-Sent Events; `Last-Event-ID` takes precedence over `after`. */
const changesStream = (feed: Feed) =>
  Effect.fnUntraced(function* (request: {
    readonly urlParams: FeedParams
    readonly incoming: Incoming
    readonly headers: { readonly "last-event-id"?: string }
  }) {
    const seen = request.headers["last-event-id"]
    if (seen !== undefined && !/^\d{0,16}$/.test(seen)) {
      return yield* Errors.badRequest("Last-Event-ID must be the id of an event, which is a whole number")
    }
    // A browser that has seen no event yet may send an empty one.
    const query = yield* queryOf(
      seen === undefined || seen === "" ? request.urlParams : { ...request.urlParams, after: Number(seen) },
      request.incoming
    )
    const events = yield* Effect.catchAll(feed.events(query), Errors.ofFeed)
    return Reply.stream("text/event-stream", events, { "cache-control": "no-store", "x-accel-buffering": "no" })
  })

/** The change log over a WebSocket. */
const changesSocket = (feed: Feed, admits: Admits) =>
  Effect.fnUntraced(function* (request: { readonly urlParams: FeedParams; readonly incoming: Incoming }) {
    const query = yield* queryOf(request.urlParams, request.incoming)
    const { host, origin, upgradeProblem } = request.incoming
    if (upgradeProblem !== undefined) return yield* upgradeFailed(upgradeProblem)
    if (!admits(origin, host)) return yield* new Forbidden({ error: "This origin may not connect" })
    return Reply.webSocket(yield* Effect.catchAll(feed.webSocket(query), Errors.ofFeed))
  })

/** The handlers of the endpoints under `/changes`. */
export const make = (feed: Feed, admits: Admits) => ({
  changes: changes(feed),
  changesStream: changesStream(feed),
  changesSocket: changesSocket(feed, admits)
})
