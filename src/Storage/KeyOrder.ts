/** Ranges of names in the order of keys, and the query of a page as the databases make it. */
import { compare } from "../Client/KeyOrder.ts"
import type { ListQuery, NamespaceQuery, Selection, TenantQuery } from "../Kv/Store.ts"

/** A page of the entries that are visible at `now`, in epoch milliseconds. */
export interface EntryQuery extends ListQuery {
  readonly now: number
  /** The page ends after the value with which it reaches this many bytes. */
  readonly size?: number
}

/** The keys from `low` on and before `high`, if it is given. */
export interface Range {
  readonly low: string
  readonly high: string | undefined
}

export const isWithin = (name: string, { high, low }: Range): boolean =>
  compare(name, low) >= 0 && (high === undefined || compare(name, high) < 0)

/** The keys of a selection; `undefined` if it can have none. */
export const rangeOf = ({ end = "", prefix, start = "" }: Omit<Selection, "namespace">): Range | undefined => {
  // Prefixes are compared in UTF-8, which cannot encode half of a surrogate pair: no key has such a prefix.
  if (!prefix.isWellFormed()) return undefined
  const endOf = endOfPrefix(prefix)
  if (start === "" && end === "") return { low: prefix, high: endOf }
  const low = compare(start, prefix) > 0 ? start : prefix
  const high = end !== "" && (endOf === undefined || compare(end, endOf) < 0) ? end : endOf
  return high !== undefined && compare(low, high) >= 0 ? undefined : { low, high }
}

/** The range of a single name. Names never contain U+0000, and not every database accepts it. */
const only = (name: string) => ({ start: name, end: after(name) })

const after = (name: string): string => `${name}\u0001`

/** The lowest texts after those that start with `tenant:`, and after those that start with `tenant:/`. */
const afterTenants = "tenant;"
const afterNameless = "tenant:0"

const partsOf = ({
  isWithoutTenant = false,
  tenant
}: NamespaceQuery): ReadonlyArray<Omit<Selection, "namespace" | "prefix">> => {
  if (isWithoutTenant) {
    const none = [{ end: after("tenant:") }, { start: "tenant:/", end: afterNameless }, { start: afterTenants }]
    return tenant === "" ? none : []
  }
  // The second range has the names that start with the tenant and a slash. Other names may be between the two ranges.
  return tenant === "" ? [{}] : [only(`tenant:${tenant}`), { start: `tenant:${tenant}/`, end: `tenant:${tenant}0` }]
}

/** The namespaces of a query as ranges, in order. */
export const rangesOfNamespaces = (query: NamespaceQuery): ReadonlyArray<Range> =>
  partsOf(query).flatMap(part => rangeOf({ ...part, prefix: query.prefix }) ?? [])

/** The range of the tenants of a query that are still to be listed; `undefined` if there can be none. */
export const rangeOfTenants = (query: TenantQuery): Range | undefined => {
  const { prefix, tenant } = query
  const { end, start } = tenant === "" ? { end: "", start: "" } : only(tenant)
  const next = query.after === undefined ? "" : after(query.after)
  return rangeOf({ prefix, end, start: compare(next, start) > 0 ? next : start })
}

/** The lowest text after all keys with a prefix; `undefined` if there is none. */
export const endOfPrefix = (prefix: string): string | undefined => {
  const points = [...prefix].map(character => character.codePointAt(0)!)
  for (let last = points.pop(); last !== undefined; last = points.pop()) {
    if (last === 0x10ffff) continue
    // Surrogates are not characters of UTF-8: U+D7FF is followed by U+E000.
    return String.fromCodePoint(...points, last === 0xd7ff ? 0xe000 : last + 1)
  }
  return undefined
}
