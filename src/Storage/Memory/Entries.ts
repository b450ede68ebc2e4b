/** The entries and tombstones of a store in memory, and pages of its namespaces and tenants. */
import { compare } from "../../Client/KeyOrder.ts"
import * as Entry from "../../Kv/Entry.ts"
import type {
  NamespaceCount,
  NamespacePage,
  NamespaceQuery,
  Selection,
  TenantCount,
  TenantPage,
  TenantQuery
} from "../../Kv/Store.ts"
import { isLive, type KeyState } from "../../Kv/Write.ts"
import * as KeyOrder from "../KeyOrder.ts"

/** The state of a key: its entry, or the tombstone that keeps its version. */
interface Slot {
  readonly entry: Entry.StoredEntry | undefined
  readonly version: number
  /** The newest change record of the key. */
  readonly seq: number
}

interface Namespace {
  readonly slots: Map<string, Slot>
  /** The keys that have an entry, in byte order of UTF-8. */
  readonly sorted: Array<string>
}

/** The first index whose key does not come before `key`, or with `past` the first whose key comes after it. */
const search = (sorted: ReadonlyArray<string>, key: string, past = false): number => {
  let low = 0
  let high = sorted.length
  while (low < high) {
    const middle = (low + high) >>> 1
    const order = compare(sorted[middle]!, key)
    if (order < 0 || (past && order === 0)) low = middle + 1
    else high = middle
  }
  return low
}

export class Entries {
  private readonly namespaces = new Map<string, Namespace>()
  private readonly expiring = new Map<string, Entry.StoredEntry>()

  /** The entry at `now` (epoch milliseconds), if it is present and has not expired. */
  get(namespace: string, key: string, now: number): Entry.StoredEntry | undefined {
    const entry = this.namespaces.get(namespace)?.slots.get(key)?.entry
    return entry !== undefined && isVisible(entry, now) ? entry : undefined
  }

  keyState(namespace: string, key: string): KeyState | undefined {
    const slot = this.namespaces.get(namespace)?.slots.get(key)
    return (
      slot && { version: slot.version, present: slot.entry !== undefined, expiresAt: slot.entry?.expiresAt ?? null }
    )
  }

  /** The visible entries of a selection that come after `after` in its order. */
  *select(selection: Selection, after: string, isDescending: boolean, now: number) {
    const space = this.namespaces.get(selection.namespace)
    const range = KeyOrder.rangeOf(selection)
    if (space === undefined || range === undefined) return
    const { slots, sorted } = space
    let low = search(sorted, range.low)
    let high = range.high === undefined ? sorted.length : search(sorted, range.high)
    if (after !== "" && isDescending) high = Math.min(high, search(sorted, after))
    else if (after !== "") low = Math.max(low, search(sorted, after, true))
    while (low < high) {
      const entry = slots.get(sorted[isDescending ? --high : low++]!)?.entry
      if (entry !== undefined && isVisible(entry, now)) yield entry
    }
  }

  /** The namespaces that have visible entries, in any order. */
  count(now: number): ReadonlyArray<NamespaceCount> {
    const due = new Map<string, number>()
    for (const { namespace } of this.due(now)) due.set(namespace, (due.get(namespace) ?? 0) + 1)
    return [...this.namespaces]
      .map(([namespace, { sorted }]) => ({ namespace, count: sorted.length - (due.get(namespace) ?? 0) }))
      .filter(({ count }) => count > 0)
  }

  /** The entries that have expired and are still stored, in any order. */
  due(now: number): ReadonlyArray<Entry.StoredEntry> {
    return [...this.expiring.values()].filter(entry => !isVisible(entry, now))
  }

  /** The earliest expiry of an entry; `null` if none expires. */
  get nextExpiry(): number | null {
    let expiresAt: number | null = null
    for (const entry of this.expiring.values()) expiresAt = Math.min(expiresAt ?? Infinity, entry.expiresAt!)
    return expiresAt
  }

  set(namespace: string, key: string, slot: Slot): void {
    let space = this.namespaces.get(namespace)
    if (space === undefined) {
      space = { slots: new Map(), sorted: [] }
      this.namespaces.set(namespace, space)
    }
    const before = space.slots.get(key)?.entry
    space.slots.set(key, slot)
    if (before === undefined && slot.entry !== undefined) space.sorted.splice(search(space.sorted, key), 0, key)
    if (before !== undefined && slot.entry === undefined) space.sorted.splice(search(space.sorted, key), 1)
    // Names never contain U+0000, so that the id is unambiguous.
    const id = `${namespace}\u0000${key}`
    if (slot.entry === undefined || slot.entry.expiresAt === null) this.expiring.delete(id)
    else this.expiring.set(id, slot.entry)
  }

  /** Removes the tombstone that the record `seq` made, unless the key was written again. */
  removeTombstone(namespace: string, key: string, seq: number): void {
    const space = this.namespaces.get(namespace)
    const slot = space?.slots.get(key)
    if (slot?.entry !== undefined || slot?.seq !== seq) return
    space!.slots.delete(key)
    if (space!.slots.size === 0) this.namespaces.delete(namespace)
  }
}

const isVisible = (entry: Entry.StoredEntry, now: number): boolean =>
  isLive({ version: entry.version, present: true, expiresAt: entry.expiresAt }, now)

/** The page of a query of namespaces. `counts` has all namespaces, in any order. */
export const pageOfNamespaces = (
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
