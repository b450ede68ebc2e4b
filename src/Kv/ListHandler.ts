/**
 * The handler of lists: a page of a namespace, or all of it from one snapshot.
 */
import { type Context, Effect, Either, Encoding, Exit, Scope } from "effect"
import type { BadRequest } from "../Http/ApiError.ts"
import type { Incoming } from "../Http/Endpoints.ts"
import * as Reply from "../Http/Reply.ts"
import type { LimitsShape } from "../Limits.ts"
import * as Errors from "./Errors.ts"
import * as ListBody from "./ListBody.ts"
import * as Operations from "./Operations.ts"
import { epochHeader, maxPage } from "./Requests.ts"
import type { ListPage, ListStream, Selection, Store } from "./Store.ts"

/** A page starts after its cursor: the last key of the page before, in base64url, so that a query can hold any key. */
const cursorOf = (lastKey: string): string => Encoding.encodeBase64Url(lastKey)

/** The key of a cursor, `""` without one. */
const keyOf = (cursor: string | undefined): Either.Either<string, BadRequest> =>
  cursor === undefined
    ? Either.right("")
    : Encoding.decodeBase64UrlString(cursor).pipe(
        Either.filterOrLeft(
          key => cursorOf(key) === cursor,
          () => undefined
        ),
        Either.mapLeft(() => Errors.badRequest("cursor is none that a Link header of this list held"))
      )

/** A Link header (RFC 8288) to the next page. `target` is the path of this page as the client wrote it. */
const link = (target: string, prefix: string, limit: number, lastKey: string): string => {
  const params = new URLSearchParams()
  if (prefix !== "") params.set("prefix", prefix)
  params.set("limit", String(limit))
  params.set("cursor", cursorOf(lastKey))
  // These characters would end the reference.
  const path = target.replaceAll("<", "%3C").replaceAll(">", "%3E").replaceAll('"', "%22")
  return `<${path}?${params}>; rel="next"`
}

/** Of which log a list is, and where in it. */
const positionHeaders = ({ epoch, lastSeq }: { readonly epoch: string; readonly lastSeq: number }) => ({
  "kv-last-seq": String(lastSeq),
  [epochHeader]: epoch
})

const pageReply = (page: ListPage, headers: Readonly<Record<string, string>> = {}): Reply.Reply =>
  Reply.json(ListBody.ofPage(page.entries), { ...positionHeaders(page), ...headers })

/** A list from one snapshot, which lasts until it is closed. */
interface OpenList {
  readonly list: ListStream
  readonly close: Effect.Effect<void>
}

/** Takes a snapshot for an answer that closes it. It can be interrupted only where `restore` allows it. */
export const withList = <A, E>(
  store: Context.Tag.Service<Store>,
  selection: Selection,
  use: (opened: OpenList, restore: <B, F>(effect: Effect.Effect<B, F>) => Effect.Effect<B, F>) => Effect.Effect<A, E>
) =>
  Effect.uninterruptibleMask(restore =>
    Effect.gen(function* () {
      const snapshot = yield* Scope.make()
      const list = yield* restore(Scope.extend(store.listAll(selection), snapshot)).pipe(
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
const listAll = (store: Context.Tag.Service<Store>, selection: Selection) =>
  withList(store, selection, ({ close, list }) =>
    Effect.succeed(
      // The status is sent already: where a portion fails, the connection is cut.
      Reply.stream("application/json", ListBody.ofPortions(list.portions), positionHeaders(list), close)
    )
  )

interface ListRequest {
  readonly path: { readonly namespace: string }
  readonly urlParams: { readonly prefix?: string; readonly limit?: number; readonly cursor?: string }
  readonly incoming: Incoming
}

/** Answers a page where the request has a `limit` or a `cursor` or all fits in one page, else a stream. */
export const make = ({ limits, store }: { readonly limits: LimitsShape; readonly store: Context.Tag.Service<Store> }) =>
  Effect.fnUntraced(function* ({ incoming, path, urlParams }: ListRequest) {
    const { prefix = "", limit, cursor } = urlParams
    yield* Operations.namespace(path.namespace, incoming.identity, limits)
    yield* Operations.text("prefix", prefix)
    const after = yield* keyOf(cursor)
    const selection = { namespace: path.namespace, prefix }
    const size = limit ?? maxPage
    const query = { ...selection, after, limit: size }
    const page = yield* Effect.catchTag(store.list(query), "StoreUnavailable", Errors.unavailable)
    if (!page.more) return pageReply(page)
    if (limit === undefined && cursor === undefined) return yield* listAll(store, selection)
    return pageReply(page, { link: link(incoming.target, prefix, size, page.entries.at(-1)?.key ?? "") })
  })
