import { isGone, renewLease } from "../SessionEvents/leases.sql.ts"

export const statements: ReadonlyArray<string> = [
  // Milliseconds. A node that has not renewed its lease since may have the longest lease.
  "ALTER TABLE causeway.nodes ADD COLUMN lease bigint NOT NULL DEFAULT 60000",
  renewLease,
  isGone
]
