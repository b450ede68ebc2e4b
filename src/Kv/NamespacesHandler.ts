/**
 * The handlers of the lists of namespaces and of tenants.
 */
import { type Context, Effect } from "effect"
import type { Incoming } from "../Http/Endpoints.ts"
import * as Reply from "../Http/Reply.ts"
import * as Errors from "./Errors.ts"
import * as ListCursor from "./ListCursor.ts"
import { listHeaders } from "./ListHandler.ts"
import * as Operations from "./Operations.ts"
import { maxPage, type NamespacesParams, type TenantsParams } from "./Requests.ts"
import type { Store } from "./Store.ts"

interface Services {
  readonly store: Context.Tag.Service<Store>
}

interface Request<Params> {
  readonly urlParams: Params
  readonly incoming: Incoming
}

/** Answers a page of the namespaces that the sender may use. */
export const namespaces = ({ store }: Services) =>
  Effect.fnUntraced(function* ({ incoming, urlParams }: Request<typeof NamespacesParams.Type>) {
    const { cursor, limit = maxPage, prefix = "", tenant: asked = "", withoutTenant } = urlParams
    yield* Operations.text("prefix", prefix)
    const tenant = yield* Operations.followedTenant(asked, incoming.identity)
    const isWithoutTenant = withoutTenant === "1"
    if (isWithoutTenant && asked !== "") {
      return yield* Errors.badRequest("tenant and withoutTenant exclude each other")
    }
    const part = [...(asked === "" ? [] : [`tenant ${asked}`]), ...(isWithoutTenant ? ["without tenant"] : [])]
    const bounds = [prefix, ...part]
    const after = yield* ListCursor.nameOf(cursor, bounds, "prefix, tenant and withoutTenant")
    const { more, namespaces, ...position } = yield* Effect.catchTag(
      store.namespaces({ prefix, after, limit, tenant, isWithoutTenant }),
      "StoreUnavailable",
      Errors.unavailable
    )
    const last = namespaces.at(-1)?.namespace ?? ""
    const kept = { prefix, tenant: asked, withoutTenant: isWithoutTenant ? "1" : undefined }
    const link = more ? ListCursor.linkHeader(incoming.target, kept, bounds, limit, last) : {}
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
    const name = yield* ListCursor.nameOf(cursor, [prefix], "prefix")
    const after = name === "" ? {} : { after: name.slice(0, -1) }
    const tenant = incoming.identity?.tenant ?? ""
    const { more, tenants, ...position } = yield* Effect.catchTag(
      store.tenants({ prefix, ...after, limit, tenant }),
      "StoreUnavailable",
      Errors.unavailable
    )
    const last = nameOfTenant(tenants.at(-1)?.tenant ?? "")
    const link = more ? ListCursor.linkHeader(incoming.target, { prefix }, [prefix], limit, last) : {}
    const items = tenants.map(({ entries, namespaces, tenant }) => ({ tenant, namespaces, entries }))
    return Reply.json(JSON.stringify({ tenants: items }), { ...listHeaders(position), ...link })
  })
