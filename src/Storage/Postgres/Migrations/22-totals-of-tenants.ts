import { rememberWrites } from "../Kv/idempotency.sql.ts"
import { compareTenants, deleteTotals, lowerTotal } from "../Kv/tenant_totals.sql.ts"

/**
 * The total of a tenant is the newest of its rows from now on, and records have a position at which scans start. Both
 * tables have a row for what writes change, which no update may leave versions of while a snapshot is held.
 */
export const statements: ReadonlyArray<string> = [
  // A writer that has locked the log may be within the former function, which the new key would fail, and may already
  // have written to `commits`. So writers are waited for at the lock that they take first.
  "LOCK TABLE causeway.log IN EXCLUSIVE MODE",
  "ALTER TABLE causeway.remembered_tenants DROP CONSTRAINT remembered_tenants_pkey, ADD PRIMARY KEY (tenant, up_to)",
  "INSERT INTO causeway.positions (name, id, up_to) VALUES ('idempotency', 1, 0)",
  deleteTotals,
  lowerTotal,
  compareTenants,
  rememberWrites
]
