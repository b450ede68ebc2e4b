/** The numbers of entries and of namespaces, which the writer maintains. */
import type Database from "better-sqlite3"
import { tenantOf } from "../../../Kv/Entry.ts"

/** The SQL equivalent of `tenantOf` for a column or an expression. */
export const tenantOfColumn = (namespace: string): string =>
  `CASE WHEN ${namespace} GLOB 'tenant:*' THEN substr(${namespace}, 8, instr(substr(${namespace}, 8) || '/', '/') - 1)
   ELSE '' END`

/** Counts all entries again, after rows were inserted without the writer. */
export const recount = `DELETE FROM namespaces;
  INSERT INTO namespaces (namespace, entries) SELECT namespace, count(*) FROM entries GROUP BY namespace;
  DELETE FROM tenants;
  INSERT INTO tenants (tenant, namespaces, entries)
    SELECT ${tenantOfColumn("namespace")}, count(*), sum(entries) FROM namespaces GROUP BY 1`

/** The difference of a tenant's counts. */
interface Gain {
  namespaces: number
  entries: number
}

/**
 * Maintains the number of entries of each namespace, and the numbers of namespaces and entries of each tenant. `flush`
 * writes all of them. Rows are updated first, and inserted if they are missing: one statement for both takes twice as
 * long.
 */
export class NamespaceCounts {
  private readonly statements: ReturnType<typeof prepare>
  private changed = new Map<string, number>()

  constructor(db: Database.Database) {
    this.statements = prepare(db)
  }

  add(namespace: string, entries: number): void {
    this.changed.set(namespace, (this.changed.get(namespace) ?? 0) + entries)
  }

  flush(): void {
    if (this.changed.size === 0) return
    const gains = new Map<string, Gain>()
    for (const [namespace, entries] of this.changed) {
      if (entries === 0) continue
      const tenant = tenantOf(namespace)
      const gain = gains.get(tenant) ?? { namespaces: 0, entries: 0 }
      gains.set(tenant, gain)
      gain.entries += entries
      gain.namespaces += this.addToNamespace(namespace, entries)
    }
    for (const [tenant, gain] of gains) this.addToTenant(tenant, gain)
    this.clear()
  }

  /** Drops differences that were not written yet. */
  clear(): void {
    if (this.changed.size > 0) this.changed = new Map()
  }

  /** Returns 1 for a new namespace, -1 for a removed one, and 0 for any other. */
  private addToNamespace(namespace: string, entries: number): number {
    const { addEntries, dropNamespace, insertNamespace } = this.statements
    if (addEntries.run(entries, namespace).changes === 0) {
      insertNamespace.run(namespace, entries)
      return 1
    }
    return entries < 0 && dropNamespace.run(namespace).changes > 0 ? -1 : 0
  }

  private addToTenant(tenant: string, { entries, namespaces }: Gain): void {
    const { addNumbers, dropTenant, insertTenant } = this.statements
    if (addNumbers.run(namespaces, entries, tenant).changes === 0) insertTenant.run(tenant, namespaces, entries)
    else if (namespaces < 0) dropTenant.run(tenant)
  }
}

const prepare = (db: Database.Database) => ({
  addEntries: db.prepare<[entries: number, namespace: string]>(
    "UPDATE namespaces SET entries = entries + ? WHERE namespace = ?"
  ),
  insertNamespace: db.prepare<[namespace: string, entries: number]>(
    "INSERT INTO namespaces (namespace, entries) VALUES (?, ?)"
  ),
  dropNamespace: db.prepare<[namespace: string]>("DELETE FROM namespaces WHERE namespace = ? AND entries = 0"),
  addNumbers: db.prepare<[namespaces: number, entries: number, tenant: string]>(
    "UPDATE tenants SET namespaces = namespaces + ?, entries = entries + ? WHERE tenant = ?"
  ),
  insertTenant: db.prepare<[tenant: string, namespaces: number, entries: number]>(
    "INSERT INTO tenants (tenant, namespaces, entries) VALUES (?, ?, ?)"
  ),
  dropTenant: db.prepare<[tenant: string]>("DELETE FROM tenants WHERE tenant = ? AND namespaces = 0")
})
