/** The handlers that read several entries, namespaces or tenants, and the cursors that lead from page to page. */

import { createHash } from "node:crypto"
import { type Context, Effect, Either, Encoding, Exit, Scope } from "effect"
import type { LimitsShape } from "../../base/Limits.ts"
import type { Incoming } from "../../Http/Endpoints.ts"
import * as Reply from "../../Http/Reply.ts"
import type { EncodedEntry } from "../Entry.ts"
import {
  epochHeader,
  type ListParams,
  maxPage,
  type NamespacesParams,
  type ReadPayload,
  type TenantsParams
} from "../Requests.ts"
import type { ListPage, ListStream, Store, StoreBusy, WholeListQuery } from "../Store.ts"
import { ofPage, ofPortions } from "./ListBody.ts"
import * as Operations from "./Operations.ts"

interface Services {
  readonly limits: LimitsShape
  readonly store: Context.Tag.Service<Store>
}

interface Request<Params> {
  readonly urlParams: Params
  readonly incoming: Incoming
}

/**
 * The parameters that a cursor is bound to, besides the name of the list: with others, a page would leave entries out.
 */
type Bounds = ReadonlyArray<string>

/** A digest of the parameters of a cursor. It is not secret: it only detects mistakes. */
const digestOf = (bounds: Bounds): string =>
  // Names never contain U+0000, so that the text is unambiguous.
  createHash("sha256").update(bounds.join("\u0000")).digest("base64url").slice(0, 8)

/** The cursor of a page: the last name of the previous page, in base64url, so that it fits into a query. */
const cursorOf = (digest: string, last: string): string => `${digest}.${Encoding.encodeBase64Url(last)}`

/**
 * The name in a cursor, `""` without one. `goesWith` names the parameters that the cursor is bound to, for the error.
 */
const nameIn = (cursor: string | undefined, bounds: Bounds, goesWith: string): Operations.Checked<string> => {
  if (cursor === undefined) return Either.right("")
  const digest = digestOf(bounds)
  const name = Encoding.decodeBase64UrlString(cursor.slice(digest.length + 1))
  return Either.isRight(name) && cursorOf(digest, name.right) === cursor
    ? Either.right(name.right)
    : Either.left(
        Operations.badRequest(`cursor is not from a Link header of this list: it requires the same ${goesWith}`)
      )
}

/** The header with a link (RFC 8288) to the next page. */
const linkHeader = (
  /** The path of this page as the client wrote it. */
  target: string,
  /** The parameters of this page that the next page has, too. */
  kept: Readonly<Record<string, string | undefined>>,
  bounds: Bounds,
  limit: number,
  last: string
): { readonly link: string } => {
  const params = new URLSearchParams()
  for (const name in kept) if (kept[name]) params.set(name, kept[name])
  params.set("limit", String(limit))
  params.set("cursor", cursorOf(digestOf(bounds), last))
  // These characters would end the reference.
  const path = target.replaceAll("<", "%3C").replaceAll(">", "%3E").replaceAll('"', "%22")
  return { link: `<${path}?${params}>; rel="next"` }
}

/** The parameters that a cursor is bound to. */
const boundsOf = (namespace: string, { end = "", prefix = "", reverse = "0", start = "" }: typeof ListParams.Type) => [
  namespace,
  prefix,
  start,
  end,
  reverse
]

const goesWith = "namespace, prefix, start, end and reverse"

/** The headers of a list: its log, its position, and the number of its entries. */
const listHeaders = ({ count, epoch, lastSeq }: Omit<ListPage, "entries" | "more">) => ({
  "kv-last-seq": String(lastSeq),
  [epochHeader]: epoch,
  ...(count === undefined ? {} : { "kv-count": String(count) })
})

const pageReply = (page: ListPage, headers: Readonly<Record<string, string>> = {}): Reply.Reply =>
  Reply.json(ofPage(page.entries), { ...listHeaders(page), ...headers })

/** 503 for a whole list beyond the limit of concurrent ones. */
const tooManyLists = (error: StoreBusy) =>
  Operations.retryLater("Too many whole lists are being read; use limit", error)

/** 503 for a count beyond the limit of concurrent ones. */
const tooManyCounts = (error: StoreBusy) =>
  Operations.retryLater("Too many lists are being counted; leave count out, or try again", error)

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
          StoreBusy: error => Effect.fail(tooManyLists(error)),
          StoreUnavailable: Operations.unavailable
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
      Reply.stream("application/json", ofPortions(list.portions), listHeaders(list), close)
    )
  )

interface ListRequest extends Request<typeof ListParams.Type> {
  readonly path: { readonly namespace: string }
}

/** The query of a request, after its texts were checked. */
const queryOf = (namespace: string, urlParams: typeof ListParams.Type): WholeListQuery => {
  const { end = "", keysOnly, prefix = "", reverse, start = "" } = urlParams
  return { namespace, prefix, start, end, isDescending: reverse === "1", keysOnly: keysOnly === "1" }
}

/** Answers a page if the request has a `limit` or a `cursor`, or if all entries fit in one page; else a stream. */
export const entries = ({ limits, store }: Services) =>
  Effect.fnUntraced(function* ({ incoming, path: { namespace }, urlParams }: ListRequest) {
    const { cursor, limit } = urlParams
    yield* Operations.namespace(namespace, incoming.identity, limits)
    for (const name of ["prefix", "start", "end"] as const) yield* Operations.text(name, urlParams[name] ?? "")
    const after = yield* nameIn(cursor, boundsOf(namespace, urlParams), goesWith)
    const query = queryOf(namespace, urlParams)
    const size = limit ?? maxPage
    const isCounted = urlParams.count === "1"
    const isWhole = limit === undefined && cursor === undefined
    const page = yield* Effect.catchTags(
      // A list without a limit is counted once it is known not to fit in a page.
      store.list({ ...query, after, limit: size, isCounted: isCounted && !isWhole }),
      { StoreBusy: error => Effect.fail(tooManyCounts(error)), StoreUnavailable: Operations.unavailable }
    )
    if (page.more && isWhole) return yield* listAll(store, { ...query, isCounted })
    if (!page.more) return pageReply(isCounted && isWhole ? { ...page, count: page.entries.length } : page)
    const { end, keysOnly, prefix, reverse, start } = urlParams
    // `count` is already known on the first page.
    const kept = { prefix, start, end, reverse, keysOnly }
    const last = page.entries.at(-1)?.key ?? ""
    return pageReply(page, linkHeader(incoming.target, kept, boundsOf(namespace, urlParams), size, last))
  })

interface ReadRequest {
  readonly payload: typeof ReadPayload.Type
  readonly incoming: Incoming
}

const absent: EncodedEntry = { json: "null", key: "" }

/** Answers the entries in the order of the keys. The limit of their values is that of a request body. */
export const entriesOfKeys = ({ limits, store }: Services) =>
  Effect.fnUntraced(function* ({ incoming, payload: { keys, keysOnly } }: ReadRequest) {
    if (keys.length > limits.batchOperations) {
      return yield* Operations.tooLarge(`keys has ${keys.length} elements; the limit is ${limits.batchOperations}`)
    }
    for (const [index, address] of keys.entries()) {
      yield* Operations.address(address, incoming.identity, limits, `keys[${index}].`)
    }
    const { entries, ...position } = yield* Effect.catchTags(store.getMany(keys, limits.bodyBytes, keysOnly), {
      StoreUnavailable: Operations.unavailable,
      EntriesTooLarge: ({ limitBytes }) =>
        Effect.fail(
          Operations.tooLarge(
            `the values of keys have more than ${limitBytes} bytes, which is the limit; ask for fewer, or for keysOnly`
          )
        )
    })
    return Reply.json(ofPage(entries.map(entry => entry ?? absent)), listHeaders(position))
  })

/** Answers a page of the namespaces that the sender may use. */
export const namespaces = ({ store }: Services) =>
  Effect.fnUntraced(function* ({ incoming, urlParams }: Request<typeof NamespacesParams.Type>) {
    const { cursor, limit = maxPage, prefix = "", tenant: asked = "", withoutTenant } = urlParams
    yield* Operations.text("prefix", prefix)
    const tenant = yield* Operations.followedTenant(asked, incoming.identity)
    const isWithoutTenant = withoutTenant === "1"
    if (isWithoutTenant && asked !== "") {
      return yield* Operations.badRequest("tenant and withoutTenant exclude each other")
    }
    const part = [...(asked === "" ? [] : [`tenant ${asked}`]), ...(isWithoutTenant ? ["without tenant"] : [])]
    const bounds = [prefix, ...part]
    const after = yield* nameIn(cursor, bounds, "prefix, tenant and withoutTenant")
    const { more, namespaces, ...position } = yield* Effect.catchTag(
      store.namespaces({ prefix, after, limit, tenant, isWithoutTenant }),
      "StoreUnavailable",
      Operations.unavailable
    )
    const last = namespaces.at(-1)?.namespace ?? ""
    const kept = { prefix, tenant: asked, withoutTenant: isWithoutTenant ? "1" : undefined }
    const link = more ? linkHeader(incoming.target, kept, bounds, limit, last) : {}
    const items = namespaces.map(
      ({ count, namespace }) => `{"namespace":${JSON.stringify(namespace)},"count":${count}}`
    )
    return Reply.json(`{"namespaces":[${items.join(",")}]}`, { ...listHeaders(position), ...link })
  })

/**
 * The id of a tenant in a cursor. The slash distinguishes the tenant `""` from the start of the list; no id has one.
 */
const nameOfTenant = (tenant: string): string => `${tenant}/`

/** Answers a page of tenants: all of them, or that of the sender. */
export const tenants = ({ store }: Services) =>
  Effect.fnUntraced(function* ({ incoming, urlParams }: Request<typeof TenantsParams.Type>) {
    const { cursor, limit = maxPage, prefix = "" } = urlParams
    yield* Operations.text("prefix", prefix)
    const name = yield* nameIn(cursor, [prefix], "prefix")
    const after = name === "" ? {} : { after: name.slice(0, -1) }
    const tenant = incoming.identity?.tenant ?? ""
    const { more, tenants, ...position } = yield* Effect.catchTag(
      store.tenants({ prefix, ...after, limit, tenant }),
      "StoreUnavailable",
      Operations.unavailable
    )
    const last = nameOfTenant(tenants.at(-1)?.tenant ?? "")
    const link = more ? linkHeader(incoming.target, { prefix }, [prefix], limit, last) : {}
    const items = tenants.map(({ entries, namespaces, tenant }) => ({ tenant, namespaces, entries }))
    return Reply.json(JSON.stringify({ tenants: items }), { ...listHeaders(position), ...link })
  })
