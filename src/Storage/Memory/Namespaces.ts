/**
 * Pages of the namespaces in memory, and of the tenants that they belong to.
 */

import { compare } from "../../Client/KeyOrder.ts"
import * as Entry from "../../Kv/Entry.ts"
import type {
  NamespaceCount,
  NamespacePage,
  NamespaceQuery,
  TenantCount,
  TenantPage,
  TenantQuery
} from "../../Kv/Store.ts"
import * as KeyOrder from "../KeyOrder.ts"

/** The page of a query. `counts` has all namespaces, in any order. */
export const page = (
  counts: ReadonlyArray<NamespaceCount>,
  query: NamespaceQuery
): Pick<NamespacePage, "namespaces" | "more"> => {
  const { after, limit } = query
  const ranges = KeyOrder.rangesOfNamespaces(query)
  const all = counts
    .filter(({ namespace }) => ranges.some(range => KeyOrder.isWithin(namespace, range)))
    .filter(({ namespace }) => after === "" || compare(namespace, after) > 0)
    .sort((a, b) => compare(a.namespace, b.namespace))
  return { namespaces: all.slice(0, limit), more: all.length > limit }
}

/** The page of a query of tenants. `counts` has all namespaces, in any order. */
export const pageOfTenants = (
  counts: ReadonlyArray<NamespaceCount>,
  query: TenantQuery
): Pick<TenantPage, "tenants" | "more"> => {
  const { limit } = query
  const range = KeyOrder.rangeOfTenants(query)
  const tenants = new Map<string, TenantCount>()
  for (const { count, namespace } of counts) {
    const tenant = Entry.tenantOf(namespace)
    const { entries, namespaces } = tenants.get(tenant) ?? { namespaces: 0, entries: 0 }
    tenants.set(tenant, { tenant, namespaces: namespaces + 1, entries: entries + count })
  }
  const all = [...tenants.values()]
    .filter(({ tenant }) => range !== undefined && KeyOrder.isWithin(tenant, range))
    .sort((a, b) => compare(a.tenant, b.tenant))
  return { tenants: all.slice(0, limit), more: all.length > limit }
}
