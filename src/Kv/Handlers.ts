/**
 * What each key-value endpoint that reads does, from a decoded request to an answer.
 */
import { type Context, Duration, Effect, Either, Exit, Option, Scope, Stream } from "effect"
import * as Direct from "../Direct.ts"
import {
  type ApiError,
  type BadRequest,
  NotFound,
  type PayloadTooLarge,
  type PreconditionFailed
} from "../Http/ApiError.ts"
import type { Incoming } from "../Http/Endpoints.ts"
import * as Reply from "../Http/Reply.ts"
import { upgradeFailed } from "../Http/WebSocket.ts"
import type { LimitsShape } from "../Limits.ts"
import type { ChangeFeed } from "./ChangeFeed.ts"
import type { ChangeQuery } from "./ChangeLog.ts"
import * as Cursor from "./Cursor.ts"
import { type EncodedEntry, type StoredEntry, toJson } from "./Entry.ts"
import * as Errors from "./Errors.ts"
import * as Operations from "./Operations.ts"
import * as Preconditions from "./Preconditions.ts"
import { defaultPage, maxPage } from "./Requests.ts"
import type { ListPage, ListStream, Selection, Store } from "./Store.ts"
import { holds, type Precondition } from "./Write.ts"

/** What handlers that read need. */
export interface Services {
  readonly store: Context.Tag.Service<Store>
  readonly feed: Context.Tag.Service<ChangeFeed>
  readonly limits: LimitsShape
}

/** An entry's address, and the preconditions that the request states. */
export interface EntryRequest {
  readonly path: { readonly namespace: string; readonly key: string }
  readonly headers: Preconditions.ConditionHeaders
}

/** The precondition that a request states. */
export const preconditionOf = (
  headers: Preconditions.ConditionHeaders
): Either.Either<Precondition | undefined, BadRequest> =>
  Either.mapLeft(Preconditions.parse(headers), Errors.badRequest)

/** An entry as an answer. */
export const entryReply = (entry: StoredEntry): Reply.Reply =>
  Reply.tagged(toJson(entry), Preconditions.etag(entry.version))

/** The entry, 304 where the client has that version, 404 where there is none. */
const answerGet = (
  found: Option.Option<StoredEntry>,
  precondition: Precondition | undefined
): Exit.Exit<Reply.Reply, NotFound | PreconditionFailed> => {
  if (Option.isNone(found)) return Exit.fail(new NotFound({ error: "Not found" }))
  const { version } = found.value
  if (holds(precondition, version)) return Exit.succeed(entryReply(found.value))
  return precondition?.match !== undefined && !holds({ match: precondition.match }, version)
    ? Exit.fail(Errors.entryRefused(version))
    : Exit.succeed(Reply.empty(304, { etag: Preconditions.etag(version) }))
}

/** Reads an entry. */
const get =
  ({ limits, store }: Services) =>
  ({ path, headers }: EntryRequest): Effect.Effect<Reply.Reply, ApiError> =>
    Direct.suspend((): Effect.Effect<Reply.Reply, ApiError> => {
      const address = Operations.address(path, limits)
      if (Either.isLeft(address)) return Exit.fail(address.left)
      const precondition = preconditionOf(headers)
      if (Either.isLeft(precondition)) return Exit.fail(precondition.left)
      return Direct.matchEffect(store.get(path.namespace, path.key), {
        onFailure: Errors.unavailable,
        onSuccess: found => answerGet(found, precondition.right)
      })
    })

/** Which entries to list. */
export interface ListRequest {
  readonly path: { readonly namespace: string }
  readonly urlParams: { readonly prefix?: string; readonly limit?: number; readonly cursor?: string }
  readonly incoming: Incoming
}

const listHeaders = (lastSeq: number) => ({ "kv-last-seq": String(lastSeq) })

const pageReply = (page: ListPage, headers: Readonly<Record<string, string>> = {}): Reply.Reply =>
  Reply.json(`{"items":[${joined(page.entries)}]}`, { ...listHeaders(page.lastSeq), ...headers })

/** A page of a namespace where the request has a `limit` or a `cursor`, else all of it. */
const list = ({ limits, store }: Services) =>
  Effect.fnUntraced(function* ({ incoming, path, urlParams }: ListRequest) {
    const { prefix = "", limit, cursor } = urlParams
    yield* Operations.namespace(path.namespace, limits)
    yield* Operations.text("prefix", prefix)
    const after = yield* Either.mapLeft(Cursor.decode(cursor), Errors.badRequest)
    const selection = { namespace: path.namespace, prefix }
    const query = { ...selection, after, limit: limit ?? maxPage }
    const page = yield* Effect.catchTag(store.list(query), "StoreUnavailable", Errors.unavailable)
    if (!page.more) return pageReply(page)
    if (limit === undefined && cursor === undefined) return yield* listAll(store, selection)
    const last = page.entries.at(-1)
    return pageReply(page, {
      link: Cursor.link(incoming.target, { prefix, limit: limit ?? maxPage, cursor: Cursor.encode(last?.key ?? "") })
    })
  })

const encoder = new TextEncoder()

const joined = (entries: ReadonlyArray<EncodedEntry>): string => entries.map(({ json }) => json).join(",")

/** A whole namespace from one snapshot, sent portion by portion while the client takes it. */
const listAll = (store: Context.Tag.Service<Store>, selection: Selection) =>
  Effect.uninterruptibleMask(restore =>
    Effect.gen(function* () {
      const snapshot = yield* Scope.make()
      const { lastSeq, portions } = yield* restore(Scope.extend(store.listAll(selection), snapshot)).pipe(
        Effect.onError(cause => Scope.close(snapshot, Exit.failCause(cause))),
        Effect.catchTags({
          StoreBusy: error => Effect.fail(Errors.tooManyLists(error)),
          StoreUnavailable: Errors.unavailable
        })
      )
      return Reply.stream(
        "application/json",
        listBody(portions),
        listHeaders(lastSeq),
        Scope.close(snapshot, Exit.void)
      )
    })
  )

const listBody = (portions: ListStream["portions"]): Stream.Stream<Uint8Array> => {
  const items = portions.pipe(
    Stream.filter(entries => entries.length > 0),
    Stream.zipWithIndex,
    Stream.map(([entries, index]) => (index === 0 ? "" : ",") + joined(entries))
  )
  return Stream.make('{"items":[').pipe(
    Stream.concat(items),
    Stream.concat(Stream.make("]}")),
    Stream.map(text => encoder.encode(text)),
    // The status is sent already: all that is left is to cut the connection, so that no client takes a part for the whole.
    Stream.orDie
  )
}

/** Where a reader of the log stands and what it wants. */
export interface FeedParams {
  readonly tenant?: string
  readonly after?: number
  readonly limit?: number
}

const queryOf = (params: FeedParams): Either.Either<ChangeQuery, BadRequest | PayloadTooLarge> => {
  const { tenant = "", after = 0, limit = defaultPage } = params
  return Either.map(Operations.text("tenant", tenant), () => ({ tenant, after, limit: Math.min(limit, maxPage) }))
}

/** A page of the change log; it may wait for one. */
const changes =
  ({ feed }: Services) =>
  (request: { readonly urlParams: FeedParams & { readonly wait?: number } }): Effect.Effect<Reply.Reply, ApiError> =>
    Direct.suspend((): Effect.Effect<Reply.Reply, ApiError> => {
      const query = queryOf(request.urlParams)
      if (Either.isLeft(query)) return Exit.fail(query.left)
      return Direct.matchEffect(feed.poll(query.right, Duration.seconds(request.urlParams.wait ?? 0)), {
        onFailure: Errors.ofFeed,
        onSuccess: page => Exit.succeed(Reply.json(page.answer))
      })
    })

/** The change log as Server-Sent Events; the last event that the client saw wins over `after`. */
const changesStream = ({ feed }: Services) =>
  Effect.fnUntraced(function* (request: {
    readonly urlParams: FeedParams
    readonly headers: { readonly "last-event-id"?: string }
  }) {
    const seen = request.headers["last-event-id"]
    if (seen !== undefined && !/^\d{0,16}$/.test(seen)) {
      return yield* Errors.badRequest("Last-Event-ID must be the id of an event, which is a whole number")
    }
    // A browser that has seen no event yet may send an empty one.
    const query = yield* queryOf(
      seen === undefined || seen === "" ? request.urlParams : { ...request.urlParams, after: Number(seen) }
    )
    const events = yield* Effect.catchAll(feed.events(query), Errors.ofFeed)
    return Reply.stream("text/event-stream", events, { "cache-control": "no-store", "x-accel-buffering": "no" })
  })

/** The change log over a WebSocket. */
const changesSocket = ({ feed }: Services) =>
  Effect.fnUntraced(function* (request: { readonly urlParams: FeedParams; readonly incoming: Incoming }) {
    const query = yield* queryOf(request.urlParams)
    const { upgradeProblem } = request.incoming
    if (upgradeProblem !== undefined) return yield* upgradeFailed(upgradeProblem)
    return Reply.webSocket(yield* Effect.catchAll(feed.webSocket(query), Errors.ofFeed))
  })

/** The handlers of the endpoints that read. */
export const make = (services: Services) => ({
  get: get(services),
  list: list(services),
  changes: changes(services),
  changesStream: changesStream(services),
  changesSocket: changesSocket(services)
})
