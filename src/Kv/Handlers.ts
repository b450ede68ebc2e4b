/**
 * What each key-value endpoint that reads does, as plain functions from a decoded request to an answer. They know no
 * transport: whoever decodes a request by the contract in `Api` can run them.
 */
import { Duration, Effect, Either, Exit, Option, Scope, Stream } from "effect"
import { type BadRequest, NotFound, type PayloadTooLarge, type PreconditionFailed } from "../Http/ApiError.ts"
import type { Incoming } from "../Http/Endpoints.ts"
import * as Reply from "../Http/Reply.ts"
import { upgradeFailed } from "../Http/WebSocket.ts"
import { Limits } from "../Limits.ts"
import { answerOf } from "./ChangeFeed/Print.ts"
import { ChangeFeed, type FeedBusy } from "./ChangeFeed.ts"
import type { ChangeQuery, HistoryTrimmed } from "./ChangeLog.ts"
import * as Cursor from "./Cursor.ts"
import { type StoredEntry, toJson } from "./Entry.ts"
import * as Errors from "./Errors.ts"
import * as Operations from "./Operations.ts"
import * as Preconditions from "./Preconditions.ts"
import { defaultPage, maxPage } from "./Requests.ts"
import { type ListPage, type ListStream, type PrintedList, type Selection, Store } from "./Store.ts"
import { holds, type Precondition } from "./Write.ts"

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
): Either.Either<Reply.Reply, NotFound | PreconditionFailed> => {
  if (Option.isNone(found)) return Either.left(new NotFound({ error: "Not found" }))
  const { version } = found.value
  if (holds(precondition, version)) return Either.right(entryReply(found.value))
  return precondition?.match !== undefined && !holds({ match: precondition.match }, version)
    ? Either.left(Errors.entryRefused(version))
    : Either.right(Reply.empty(304, { etag: Preconditions.etag(version) }))
}

/** Reads an entry. */
export const get = Effect.fnUntraced(function* ({ path, headers }: EntryRequest) {
  const limits = yield* Limits
  const store = yield* Store
  yield* Operations.address(path, limits)
  const precondition = yield* preconditionOf(headers)
  const found = yield* Effect.catchTag(store.get(path.namespace, path.key), "StoreUnavailable", Errors.unavailable)
  return yield* answerGet(found, precondition)
})

/** `get` without a fiber, which costs more than the read: for what is answered well and by a store that need not wait. */
export const getAtOnce = Effect.gen(function* () {
  const limits = yield* Limits
  const { unsafeGet } = yield* Store
  const clock = yield* Effect.clock
  return ({ path, headers }: EntryRequest): Reply.Reply | undefined => {
    if (unsafeGet === undefined || Either.isLeft(Operations.address(path, limits))) return undefined
    const precondition = preconditionOf(headers)
    if (Either.isLeft(precondition)) return undefined
    const found = unsafeGet(path.namespace, path.key, clock.unsafeCurrentTimeMillis())
    if (found === undefined) return undefined
    return Option.getOrUndefined(Either.getRight(answerGet(found, precondition.right)))
  }
})

/** Which entries to list; `target` is the request's path as the client wrote it, which links lead back to. */
export interface ListRequest {
  readonly path: { readonly namespace: string }
  readonly urlParams: { readonly prefix?: string; readonly limit?: number; readonly cursor?: string }
  readonly target: string
}

const listHeaders = (lastSeq: number) => ({ "kv-last-seq": String(lastSeq) })

const pageReply = (page: PrintedList, headers: Readonly<Record<string, string>> = {}): Reply.Reply =>
  Reply.json(`{"items":[${page.entries.join(",")}]}`, { ...listHeaders(page.lastSeq), ...headers })

const print = ({ entries, lastSeq, more }: ListPage): PrintedList => ({
  entries: entries.map(toJson),
  lastSeq,
  more,
  lastKey: entries.at(-1)?.key ?? ""
})

/** A page of a namespace where the request has a `limit` or a `cursor`, else all of it. */
export const list = Effect.fnUntraced(function* (request: ListRequest) {
  const { path, urlParams, target } = request
  const { prefix = "", limit, cursor } = urlParams
  const limits = yield* Limits
  const store = yield* Store
  yield* Operations.namespace(path.namespace, limits)
  yield* Operations.text("prefix", prefix)
  const after = yield* Either.mapLeft(Cursor.decode(cursor), Errors.badRequest)
  const selection = { namespace: path.namespace, prefix }
  const query = { ...selection, after, limit: limit ?? maxPage }
  const page = yield* Effect.catchTag(
    store.listPrinted?.(query) ?? Effect.map(store.list(query), print),
    "StoreUnavailable",
    Errors.unavailable
  )
  const paged = limit !== undefined || cursor !== undefined
  if (!page.more) return pageReply(page)
  if (!paged) return yield* listAll(selection)
  return pageReply(page, {
    link: Cursor.link(target, { prefix, limit: limit ?? maxPage, cursor: Cursor.encode(page.lastKey) })
  })
})

const encoder = new TextEncoder()

/** A whole namespace from one snapshot, printed portion by portion while the client takes it. */
const listAll = (selection: Selection) =>
  Effect.uninterruptibleMask(restore =>
    Effect.gen(function* () {
      const store = yield* Store
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
    Stream.map(([entries, index]) => (index === 0 ? "" : ",") + entries.map(toJson).join(","))
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

const feedFailures = {
  StoreUnavailable: Errors.unavailable,
  HistoryTrimmed: (error: HistoryTrimmed) => Effect.fail(Errors.trimmed(error)),
  FeedBusy: (error: FeedBusy) => Effect.fail(Errors.feedBusy(error))
}

/** A page of the change log; it may wait for one. */
export const changes = Effect.fnUntraced(function* (request: {
  readonly urlParams: FeedParams & { readonly wait?: number }
}) {
  const feed = yield* ChangeFeed
  const query = yield* queryOf(request.urlParams)
  const wait = Duration.seconds(request.urlParams.wait ?? 0)
  const page = yield* Effect.catchTags(feed.poll(query, wait), feedFailures)
  return Reply.json(answerOf(page))
})

/** The change log as Server-Sent Events; the last event that the client saw wins over `after`. */
export const changesStream = Effect.fnUntraced(function* (request: {
  readonly urlParams: FeedParams
  readonly headers: { readonly "last-event-id"?: string }
}) {
  const feed = yield* ChangeFeed
  const seen = request.headers["last-event-id"]
  if (seen !== undefined && !/^\d{0,16}$/.test(seen)) {
    return yield* Errors.badRequest("Last-Event-ID must be the id of an event, which is a whole number")
  }
  // A browser that has seen no event yet may send an empty one.
  const query = yield* queryOf(
    seen === undefined || seen === "" ? request.urlParams : { ...request.urlParams, after: Number(seen) }
  )
  const events = yield* Effect.catchTags(feed.events(query), feedFailures)
  return Reply.stream("text/event-stream", events, { "cache-control": "no-store", "x-accel-buffering": "no" })
})

/** The change log over a WebSocket. */
export const changesSocket = Effect.fnUntraced(function* (request: {
  readonly urlParams: FeedParams
  readonly incoming: Pick<Incoming, "upgradeProblem">
}) {
  const feed = yield* ChangeFeed
  const query = yield* queryOf(request.urlParams)
  const { upgradeProblem } = request.incoming
  if (upgradeProblem !== undefined) return yield* upgradeFailed(upgradeProblem)
  return Reply.webSocket(yield* Effect.catchTags(feed.webSocket(query), feedFailures))
})
