import type { ChangeQuery } from "../ChangeLog.ts"
import type { Page } from "./Page.ts"

/**
 * Readers indexed by their tenant or namespace, so that the cost of a commit is proportional to the number of its
 * readers.
 */
export class ReadersByPart<A extends { readonly query: ChangeQuery }> {
  private readonly tenants = new Map<string, Set<A>>()
  private readonly namespaces = new Map<string, Set<A>>()
  private count = 0

  get size(): number {
    return this.count
  }

  add(reader: A): void {
    const { namespace, tenant } = reader.query
    const [groups, name] = namespace === undefined ? [this.tenants, tenant] : [this.namespaces, namespace]
    const group = groups.get(name)
    if (group === undefined) groups.set(name, new Set([reader]))
    else group.add(reader)
    this.count++
  }

  /** Returns whether the reader was present. */
  delete(reader: A): boolean {
    const { namespace, tenant } = reader.query
    const [groups, name] = namespace === undefined ? [this.tenants, tenant] : [this.namespaces, namespace]
    const group = groups.get(name)
    if (group === undefined || !group.delete(reader)) return false
    if (group.size === 0) groups.delete(name)
    this.count--
    return true
  }

  all(): ReadonlyArray<A> {
    return [...this.tenants.values(), ...this.namespaces.values()].flatMap(group => [...group])
  }

  /** Groups of readers that may need changes of an unfiltered page, each with the last `seq` of these changes. */
  groupsOf(page: Page): ReadonlyArray<{ readonly readers: ReadonlySet<A>; readonly lastSeq: number }> {
    if (page.count === 0) return []
    const found: Array<{ readonly readers: ReadonlySet<A>; readonly lastSeq: number }> = []
    const add = (readers: ReadonlySet<A> | undefined, lastSeq: number): void => {
      if (readers !== undefined) found.push({ readers, lastSeq })
    }
    const all = this.tenants.get("")
    add(all, page.lastSeq)
    if (this.count === (all?.size ?? 0)) return found
    for (const [tenant, seq] of page.lastSeqs) if (tenant !== "") add(this.tenants.get(tenant), seq)
    if (this.namespaces.size === 0) return found
    for (const [namespace, seq] of page.lastSeqsOfNamespaces) add(this.namespaces.get(namespace), seq)
    return found
  }
}
