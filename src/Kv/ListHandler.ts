/**
 * The handler of lists: a page of a namespace, or all of it from one snapshot.
 */
import { createHash } from "node:crypto"
import { type Context, Effect, Either, Encoding, Exit, Scope } from "effect"
import type { BadRequest } from "../Http/ApiError.ts"
import type { Incoming } from "../Http/Endpoints.ts"
import * as Reply from "../Http/Reply.ts"
import type { LimitsShape } from "../Limits.ts"
import * as Errors from "./Errors.ts"
import * as ListBody from "./ListBody.ts"
import * as Operations from "./Operations.ts"
import { epochHeader, type ListParams as ListParamsSchema, maxPage } from "./Requests.ts"
import type { ListPage, ListStream, Store, WholeListQuery } from "./Store.ts"

type ListParams = typeof ListParamsSchema.Type

/** What a cursor goes with beside its namespace: pages of another list would leave entries out. */
type Bounds = Pick<ListParams, "prefix" | "start" | "end" | "reverse">

/** A digest of the list that a cursor is of. It is no secret: it tells a mistake. */
const digestOf = (namespace: string, { end = "", prefix = "", reverse, start = "" }: Bounds): string =>
  createHash("sha256")
    // Names hold no U+0000, so that it tells them apart.
    .update([namespace, prefix, start, end, String(reverse === "1")].join("\u0000"))
    .digest("base64url")
    .slice(0, 8)

/** A page starts after its cursor: the last key of the page before, in base64url, so that a query can hold any key. */
const cursorOf = (digest: string, lastKey: string): string => `${digest}.${Encoding.encodeBase64Url(lastKey)}`

const refusedCursor = Either.left(
  Errors.badRequest(
    "cursor is none that a Link header of this list held: it goes with the same namespace, prefix, start, end and reverse"
  )
)

/** The key of a cursor, `""` without one. */
const keyOf = (cursor: string | undefined, namespace: string, bounds: Bounds): Either.Either<string, BadRequest> => {
  if (cursor === undefined) return Either.right("")
  const digest = digestOf(namespace, bounds)
  const key = Encoding.decodeBase64UrlString(cursor.slice(digest.length + 1))
  return Either.isRight(key) && cursorOf(digest, key.right) === cursor ? Either.right(key.right) : refusedCursor
}

/** The parameters that the next page has as this one does. `count` is known by then. */
const kept = ["prefix", "start", "end", "reverse", "keysOnly"] as const

/** A Link header (RFC 8288) to the next page. `target` is the path of this page as the client wrote it. */
const link = (target: string, namespace: string, urlParams: ListParams, limit: number, lastKey: string): string => {
  const params = new URLSearchParams()
  for (const name of kept) if (urlParams[name]) params.set(name, urlParams[name])
  params.set("limit", String(limit))
  params.set("cursor", cursorOf(digestOf(namespace, urlParams), lastKey))
  // These characters would end the reference.
  const path = target.replaceAll("<", "%3C").replaceAll(">", "%3E").replaceAll('"', "%22")
  return `<${path}?${params}>; rel="next"`
}

/** Of which log a list is, where in it, and how many entries the list has. */
const listHeaders = ({ count, epoch, lastSeq }: Pick<ListPage, "count" | "epoch" | "lastSeq">) => ({
  "kv-last-seq": String(lastSeq),
  [epochHeader]: epoch,
  ...(count === undefined ? {} : { "kv-count": String(count) })
})

const pageReply = (page: ListPage, headers: Readonly<Record<string, string>> = {}): Reply.Reply =>
  Reply.json(ListBody.ofPage(page.entries), { ...listHeaders(page), ...headers })

/** A list from one snapshot, which lasts until it is closed. */
interface OpenList {
  readonly list: ListStream
  readonly close: Effect.Effect<void>
}

/** Takes a snapshot for an answer that closes it. It can be interrupted only where `restore` allows it. */
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
      // The status is sent already: where a portion fails, the connection is cut.
      Reply.stream("application/json", ListBody.ofPortions(list.portions), listHeaders(list), close)
    )
  )

interface ListRequest {
  readonly path: { readonly namespace: string }
  readonly urlParams: ListParams
  readonly incoming: Incoming
}

/** What a request asks to be listed, once its texts are checked. */
const queryOf = (namespace: string, urlParams: ListParams): WholeListQuery => {
  const { end = "", keysOnly, prefix = "", reverse, start = "" } = urlParams
  return { namespace, prefix, start, end, isDescending: reverse === "1", keysOnly: keysOnly === "1" }
}

/** Answers a page where the request has a `limit` or a `cursor` or all fits in one page, else a stream. */
export const make = ({ limits, store }: { readonly limits: LimitsShape; readonly store: Context.Tag.Service<Store> }) =>
  Effect.fnUntraced(function* ({ incoming, path: { namespace }, urlParams }: ListRequest) {
    const { cursor, limit } = urlParams
    yield* Operations.namespace(namespace, incoming.identity, limits)
    for (const name of ["prefix", "start", "end"] as const) yield* Operations.text(name, urlParams[name] ?? "")
    const after = yield* keyOf(cursor, namespace, urlParams)
    const query = queryOf(namespace, urlParams)
    const size = limit ?? maxPage
    const isCounted = urlParams.count === "1"
    const isWhole = limit === undefined && cursor === undefined
    const page = yield* Effect.catchTag(
      // A list that comes whole is counted when it is known not to fit in a page.
      store.list({ ...query, after, limit: size, isCounted: isCounted && !isWhole }),
      "StoreUnavailable",
      Errors.unavailable
    )
    if (page.more && isWhole) return yield* listAll(store, { ...query, isCounted })
    if (!page.more) return pageReply(isCounted && isWhole ? { ...page, count: page.entries.length } : page)
    return pageReply(page, {
      link: link(incoming.target, namespace, urlParams, size, page.entries.at(-1)?.key ?? "")
    })
  })
