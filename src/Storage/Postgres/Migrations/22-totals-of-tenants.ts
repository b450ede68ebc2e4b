import { rememberWrites } from "../Kv/idempotency.sql.ts"
import { compareTenants, deleteTotals, lowerTotal } from "../Kv/tenant_totals.sql.ts"

/**
 * The total of a tenant is the newest of its rows from now on, and records have a position at which scans start. Both
 * tables have a row for what writes change, which no update may leave versions of while a snapshot is held.
 */
export const statements: ReadonlyArray<string> = [
  "ALTER TABLE causeway.remembered_tenants DROP CONSTRAINT remembered_tenants_pkey, ADD PRIMARY KEY (tenant, up_to)",
  "INSERT INTO causeway.positions (name, id, up_to) VALUES ('idempotency', 1, 0)",
  deleteTotals,
  lowerTotal,
  compareTenants,
  rememberWrites
]
