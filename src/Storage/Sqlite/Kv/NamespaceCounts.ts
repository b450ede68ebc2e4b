import type Database from "better-sqlite3"
import { tenantOf } from "../../../Kv/Entry.ts"

/** `tenantOf` of a column or an expression. */
export const tenantOfColumn = (namespace: string): string =>
  `CASE WHEN ${namespace} GLOB 'tenant:*' THEN substr(${namespace}, 8, instr(substr(${namespace}, 8) || '/', '/') - 1)
   ELSE '' END`

/** Counts the namespaces of each tenant, where the table has none. */
export const countTenants = `INSERT INTO tenants (tenant, namespaces, entries)
  SELECT ${tenantOfColumn("namespace")}, count(*), sum(entries) FROM namespaces GROUP BY 1`

/** Counts all entries, where rows were inserted otherwise than by the writer. */
export const recount = `DELETE FROM namespaces;
  INSERT INTO namespaces (namespace, entries) SELECT namespace, count(*) FROM entries GROUP BY namespace;
  DELETE FROM tenants;
  ${countTenants}`

/** What a tenant gains, or loses. */
interface Gain {
  namespaces: number
  entries: number
}

/**
 * Keeps how many entries each namespace has, and how many namespaces and entries each tenant. All is written by
 * `flush`.
 */
export class NamespaceCounts {
  private readonly addEntries: Database.Statement<[namespace: string, entries: number], number>
  private readonly dropEmpty: Database.Statement<[namespace: string]>
  private readonly addToTenant: Database.Statement<[tenant: string, namespaces: number, entries: number], number>
  private readonly dropTenant: Database.Statement<[tenant: string]>
  private changed = new Map<string, number>()

  constructor(db: Database.Database) {
    this.addEntries = db
      .prepare<[string, number], number>(
        `INSERT INTO namespaces (namespace, entries) VALUES (?, ?)
         ON CONFLICT DO UPDATE SET entries = entries + excluded.entries RETURNING entries`
      )
      .pluck()
    this.dropEmpty = db.prepare("DELETE FROM namespaces WHERE namespace = ?")
    this.addToTenant = db
      .prepare<[string, number, number], number>(
        `INSERT INTO tenants (tenant, namespaces, entries) VALUES (?, ?, ?) ON CONFLICT DO UPDATE
         SET namespaces = namespaces + excluded.namespaces, entries = entries + excluded.entries RETURNING namespaces`
      )
      .pluck()
    this.dropTenant = db.prepare("DELETE FROM tenants WHERE tenant = ?")
  }

  add(namespace: string, entries: number): void {
    this.changed.set(namespace, (this.changed.get(namespace) ?? 0) + entries)
  }

  flush(): void {
    if (this.changed.size === 0) return
    const gains = new Map<string, Gain>()
    for (const [namespace, entries] of this.changed) {
      if (entries === 0) continue
      const left = this.addEntries.get(namespace, entries)!
      if (left === 0) this.dropEmpty.run(namespace)
      const tenant = tenantOf(namespace)
      const gain = gains.get(tenant) ?? { namespaces: 0, entries: 0 }
      gains.set(tenant, gain)
      gain.entries += entries
      // It was not there before, or it is gone.
      gain.namespaces += left === entries ? 1 : left === 0 ? -1 : 0
    }
    for (const [tenant, { entries, namespaces }] of gains) {
      if (this.addToTenant.get(tenant, namespaces, entries) === 0) this.dropTenant.run(tenant)
    }
    this.clear()
  }

  /** Drops what was not written yet. */
  clear(): void {
    if (this.changed.size > 0) this.changed = new Map()
  }
}
