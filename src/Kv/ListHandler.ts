/**
 * The handler of lists: a page of a namespace, or all of it from one snapshot.
 */
import { type Context, Effect, Exit, Scope } from "effect"
import type { Incoming } from "../Http/Endpoints.ts"
import * as Reply from "../Http/Reply.ts"
import type { LimitsShape } from "../Limits.ts"
import * as Errors from "./Errors.ts"
import * as ListBody from "./ListBody.ts"
import * as ListCursor from "./ListCursor.ts"
import * as Operations from "./Operations.ts"
import { epochHeader, type ListParams as ListParamsSchema, maxPage } from "./Requests.ts"
import type { ListPage, ListStream, Store, WholeListQuery } from "./Store.ts"

type ListParams = typeof ListParamsSchema.Type

/** The parameters that a cursor is bound to. */
const boundsOf = (namespace: string, { end = "", prefix = "", reverse = "0", start = "" }: ListParams) => [
  namespace,
  prefix,
  start,
  end,
  reverse
]

const goesWith = "namespace, prefix, start, end and reverse"

/** The headers of a list: its log, its position, and the number of its entries. */
export const listHeaders = ({ count, epoch, lastSeq }: Omit<ListPage, "entries" | "more">) => ({
  "kv-last-seq": String(lastSeq),
  [epochHeader]: epoch,
  ...(count === undefined ? {} : { "kv-count": String(count) })
})

const pageReply = (page: ListPage, headers: Readonly<Record<string, string>> = {}): Reply.Reply =>
  Reply.json(ListBody.ofPage(page.entries), { ...listHeaders(page), ...headers })

/** A list from one snapshot, which exists until it is closed. */
interface OpenList {
  readonly list: ListStream
  readonly close: Effect.Effect<void>
}

/** Takes a snapshot for an answer that closes it. It can be interrupted only within `restore`. */
export const withList = <A, E>(
  store: Context.Tag.Service<Store>,
  query: WholeListQuery,
  use: (opened: OpenList, restore: <B, F>(effect: Effect.Effect<B, F>) => Effect.Effect<B, F>) => Effect.Effect<A, E>
) =>
  Effect.uninterruptibleMask(restore =>
    Effect.gen(function* () {
      const snapshot = yield* Scope.make()
      const list = yield* restore(Scope.extend(store.listAll(query), snapshot)).pipe(
        Effect.onError(cause => Scope.close(snapshot, Exit.failCause(cause))),
        Effect.catchTags({
          StoreBusy: error => Effect.fail(Errors.tooManyLists(error)),
          StoreUnavailable: Errors.unavailable
        })
      )
      return yield* use({ list, close: Scope.close(snapshot, Exit.void) }, restore)
    })
  )

/** A whole namespace from one snapshot, sent in portions as the client reads them. */
const listAll = (store: Context.Tag.Service<Store>, query: WholeListQuery) =>
  withList(store, query, ({ close, list }) =>
    Effect.succeed(
      // The status was already sent: if a portion fails, the connection is closed.
      Reply.stream("application/json", ListBody.ofPortions(list.portions), listHeaders(list), close)
    )
  )

interface ListRequest {
  readonly path: { readonly namespace: string }
  readonly urlParams: ListParams
  readonly incoming: Incoming
}

/** The query of a request, after its texts were checked. */
const queryOf = (namespace: string, urlParams: ListParams): WholeListQuery => {
  const { end = "", keysOnly, prefix = "", reverse, start = "" } = urlParams
  return { namespace, prefix, start, end, isDescending: reverse === "1", keysOnly: keysOnly === "1" }
}

/** Answers a page if the request has a `limit` or a `cursor`, or if all entries fit in one page; else a stream. */
export const make = ({ limits, store }: { readonly limits: LimitsShape; readonly store: Context.Tag.Service<Store> }) =>
  Effect.fnUntraced(function* ({ incoming, path: { namespace }, urlParams }: ListRequest) {
    const { cursor, limit } = urlParams
    yield* Operations.namespace(namespace, incoming.identity, limits)
    for (const name of ["prefix", "start", "end"] as const) yield* Operations.text(name, urlParams[name] ?? "")
    const after = yield* ListCursor.nameOf(cursor, boundsOf(namespace, urlParams), goesWith)
    const query = queryOf(namespace, urlParams)
    const size = limit ?? maxPage
    const isCounted = urlParams.count === "1"
    const isWhole = limit === undefined && cursor === undefined
    const page = yield* Effect.catchTags(
      // A list without a limit is counted once it is known not to fit in a page.
      store.list({ ...query, after, limit: size, isCounted: isCounted && !isWhole }),
      { StoreBusy: error => Effect.fail(Errors.tooManyCounts(error)), StoreUnavailable: Errors.unavailable }
    )
    if (page.more && isWhole) return yield* listAll(store, { ...query, isCounted })
    if (!page.more) return pageReply(isCounted && isWhole ? { ...page, count: page.entries.length } : page)
    const { end, keysOnly, prefix, reverse, start } = urlParams
    // `count` is already known on the first page.
    const kept = { prefix, start, end, reverse, keysOnly }
    const last = page.entries.at(-1)?.key ?? ""
    return pageReply(page, ListCursor.linkHeader(incoming.target, kept, boundsOf(namespace, urlParams), size, last))
  })
