/**
 * The handler of the list of namespaces.
 */
import { type Context, Effect } from "effect"
import type { Incoming } from "../Http/Endpoints.ts"
import * as Reply from "../Http/Reply.ts"
import * as Errors from "./Errors.ts"
import * as ListCursor from "./ListCursor.ts"
import { listHeaders } from "./ListHandler.ts"
import * as Operations from "./Operations.ts"
import { maxPage, type NamespacesParams } from "./Requests.ts"
import type { Store } from "./Store.ts"

interface NamespacesRequest {
  readonly urlParams: typeof NamespacesParams.Type
  readonly incoming: Incoming
}

/** Answers a page of the namespaces that the sender may use. */
export const make = ({ store }: { readonly store: Context.Tag.Service<Store> }) =>
  Effect.fnUntraced(function* ({ incoming, urlParams }: NamespacesRequest) {
    const { cursor, limit = maxPage, prefix = "" } = urlParams
    yield* Operations.text("prefix", prefix)
    const after = yield* ListCursor.nameOf(cursor, [prefix], "prefix")
    const tenant = incoming.identity?.tenant ?? ""
    const { more, namespaces, ...position } = yield* Effect.catchTag(
      store.namespaces({ prefix, after, limit, tenant }),
      "StoreUnavailable",
      Errors.unavailable
    )
    const last = namespaces.at(-1)?.namespace ?? ""
    const link = more ? ListCursor.linkHeader(incoming.target, { prefix }, [prefix], limit, last) : {}
    const items = namespaces.map(
      ({ count, namespace }) => `{"namespace":${JSON.stringify(namespace)},"count":${count}}`
    )
    return Reply.json(`{"namespaces":[${items.join(",")}]}`, { ...listHeaders(position), ...link })
  })
